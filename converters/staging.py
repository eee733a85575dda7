"""All or nothing: a folder is filled beside its place and then renamed into it."""

import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from envconvert.report import FILE


class TargetTakenError(Exception):
    """The target folder is in use; the message says what to do."""


class OverlapError(Exception):
    """Source and target lie in one another."""


def check_apart(source: Path, target: Path) -> None:
    """Raise `OverlapError` where one of the two folders holds the other, or they are one."""
    here, there = Path(os.path.realpath(source)), Path(os.path.realpath(target))
    if here == there or here in there.parents or there in here.parents:
        raise OverlapError(f"{target}: source and target must not lie in one another; the source is {source}")


def check_free(target: Path, *, force: bool) -> None:
    """Raise `TargetTakenError` unless `target` may be written: absent, empty, or with `force` one of ours.

    What a killed process has left there is cleared up first.
    """
    _remove_abandoned(Path(os.path.realpath(target)))
    if not os.path.lexists(target):
        above = next(folder for folder in target.absolute().parents if folder.exists())
        if not above.is_dir():
            raise TargetTakenError(f"{target}: {above} is a file, and no folder can be made in it; name another place")
        return
    if not target.is_dir():
        raise TargetTakenError(f"{target}: it is a file; name a folder that is new or empty")
    if not any(target.iterdir()):
        return
    if not force:
        raise TargetTakenError(
            f"{target}: it is not empty; name another folder, or give --force to replace what envconvert wrote"
        )
    if not _is_ours(target):
        raise TargetTakenError(f"{target}: --force replaces only what envconvert wrote, and it holds no {FILE} of ours")


def _is_ours(target: Path) -> bool:
    """Whether there is a report of ours at its root, or in each of its folders one of the format it is named after."""
    if (target / FILE).is_file():
        return _formats(target) is not None
    return all(_formats(place) == [place.name] for place in target.iterdir())


def _formats(folder: Path) -> object:
    """What the report in `folder` says was written there; None where there is no report of ours."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes())["target"]["formats"]
    except (OSError, msgspec.DecodeError, TypeError, KeyError):
        return None


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """A new folder beside `target` that takes its place when the block ends, and is removed when it raises.

    A killed process leaves its folder, whose name says who made it; `check_free` for the same target removes it.
    """
    target = Path(os.path.realpath(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    stage = target.parent / f".{target.name}.{_host()}.{os.getpid()}.partial"
    stage.mkdir()
    try:
        yield stage
        _take_place(stage, target)
    except BaseException:
        remove_tree(stage)
        raise


def _take_place(stage: Path, target: Path) -> None:
    if target.is_dir() and any(target.iterdir()):
        old = stage.with_suffix(".replaced")
        target.rename(old)
        stage.rename(target)
        remove_tree(old)
    else:
        stage.rename(target)


def _host() -> str:
    return re.sub(r"\W", "_", socket.gethostname())


def _remove_abandoned(target: Path) -> None:
    pattern = re.compile(rf"\.{re.escape(target.name)}\.{_host()}\.(\d+)\.(partial|replaced)")
    for found in target.parent.iterdir() if target.parent.is_dir() else ():
        match = pattern.fullmatch(found.name)
        if match is None or _is_alive(int(match[1])):
            continue
        if match[2] == "replaced" and not target.exists():
            found.rename(target)  # killed between the two renames: what was there comes back
        else:
            remove_tree(found)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def remove_tree(folder: Path) -> None:
    """Remove `folder`, folders without write permission in it included."""
    for place, _, _ in os.walk(folder):
        os.chmod(place, 0o700)
    shutil.rmtree(folder)
