"""All or nothing: a folder is filled beside its place and then renamed into it."""

import os
import re
import shutil
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from envconvert.report import FILE, repository


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
    clear_abandoned(target)
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
        reason = f"and it holds no {FILE} of ours, or more than that names"
        raise TargetTakenError(f"{target}: --force replaces only what envconvert wrote, {reason}")


def _is_ours(target: Path) -> bool:
    """Whether there is a report of ours at its root, or in each of its folders one of the format it is named after."""
    published = repository(target)
    if published is not None:  # whose owner may have put something beside it
        return {place.name for place in target.iterdir()} <= set(published.entries)
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
def staged(target: Path, *, ours: Collection[str] | None = None, force: bool = False) -> Iterator[Path]:
    """A new folder beside `target` that takes its place when the block ends, and is removed when it raises.

    With `ours`, `target` stays, and only what stands in it under these names is replaced or removed; where the new
    folder has another name that is taken there, `TargetTakenError` is raised unless `force`.

    A killed process leaves its folder, whose name says who made it; `clear_abandoned` for the same target removes it.
    """
    target = Path(os.path.realpath(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    stage = target.parent / f".{target.name}.{_host()}.{os.getpid()}.partial"
    try:
        stage.mkdir()  # in here, since Ctrl-C may come as soon as it is done
        yield stage
        if ours is None:
            _take_place(stage, target)
        else:
            _update(stage, target, ours, force)
    except BaseException:
        if stage.is_dir():
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


def _update(stage: Path, target: Path, ours: Collection[str], force: bool) -> None:
    """Replace the entries of `target`: a file in one step, a folder in two. The report comes last."""
    new = {entry.name for entry in stage.iterdir()}
    foreign = sorted(name for name in new - set(ours) if os.path.lexists(target / name))
    if foreign and not force:
        raise TargetTakenError(
            f"{target}: {', '.join(foreign)}: it is in the way, and envconvert did not write it; "
            "move it, or give --force to replace it"
        )
    old = stage.with_suffix(".replaced")
    old.mkdir()
    for name in sorted({*new, *ours}, key=lambda name: (name == FILE, name)):
        there = target / name
        if os.path.lexists(there) and (name not in new or there.is_dir() or (stage / name).is_dir()):
            there.rename(old / name)
        if name in new:
            (stage / name).rename(there)
    stage.rmdir()
    remove_tree(old)


def _host() -> str:
    return re.sub(r"\W", "_", socket.gethostname())


def clear_abandoned(target: Path) -> None:
    """Remove what killed processes have left beside `target`, or put it back."""
    target = Path(os.path.realpath(target))
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
