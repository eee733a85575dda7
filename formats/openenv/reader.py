"""OpenEnv packages: those that envconvert wrote, read back byte for byte, and those of others, read without a run."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from envconvert.formats import packages, replies
from envconvert.formats.execution import Execution
from envconvert.formats.files import UnreadableSourceError
from envconvert.formats.harbor.packages import read_folders
from envconvert.formats.openenv.episodes import Episode
from envconvert.formats.openenv.fidelity import NAME
from envconvert.formats.openenv.sources.finding import is_package
from envconvert.formats.repository import TASKS
from envconvert.formats.taskset import NONE, Resets, Select, Taskset, every


def _is_ours(source: Path) -> bool:
    """Whether `source` is a package of tasks that envconvert wrote."""
    header = source / packages.HEADER
    if not header.is_file() or not is_package(source):
        return False
    return replies.is_reply_file(header) or ((source / TASKS).is_dir() and not packages.is_server_file(header))


def detect(source: Path) -> bool:
    """Whether `source` is a package that envconvert wrote, or one of others."""
    return _is_ours(source) or (is_package(source) and not (source / "task.toml").exists())


def read(
    source: Path,
    *,
    name: str | None,
    reward_key: str | None,
    select: Select = every,
    dataset: str | None = None,
    split: str | None = None,
    arguments: Mapping[str, str] = NONE,
    resets: Resets = (),
    execution: Execution | None = None,
) -> Taskset:
    """The taskset of the package at `source`. `name` and `reward_key` override what it says of itself.

    With `resets`, a package that others wrote is read as episodes on its server, each begun with some of them.
    """
    if dataset is not None:
        raise UnreadableSourceError(source, "a package is one dataset; leave out --dataset")
    header = source / packages.HEADER
    if not _is_ours(source):
        if not is_package(source):
            raise UnreadableSourceError(source, "it is no OpenEnv package: there is no openenv.yaml in it")
        if split is not None:
            raise UnreadableSourceError(source, "its server says no splits; give --reset what chooses one")
        from envconvert.formats.openenv.sources import tasks  # libcst takes its time

        said = _kept(header) if header.is_file() and packages.is_server_file(header) else None
        return tasks.read(source, name=name, reward_key=reward_key, select=select, resets=resets, said=said)
    if resets:
        raise UnreadableSourceError(
            source, "envconvert wrote it, and its tasks are known; leave out --reset and --seeds"
        )
    if replies.is_reply_file(header):
        return replies.read(
            source,
            header,
            format=NAME,
            name=name,
            reward_key=reward_key,
            select=select,
            graders=[source / "server"],
            split=split,
        )
    return read_folders(
        source,
        header,
        source / TASKS,
        format=NAME,
        name=name,
        reward_key=reward_key,
        select=select,
        split=split,
    )


def _kept(header: Path) -> tuple[packages.Header, list[Episode]]:
    """What envconvert kept of a package of others, in its taskset.jsonl."""
    with open(header, "rb") as lines:
        lines.readline()
        try:
            found = [msgspec.json.decode(line, type=Episode) for line in lines]
        except msgspec.DecodeError as error:
            raise UnreadableSourceError(header, f"it has a line that is no episode: {error}") from None
    return packages.read_header(header), found
