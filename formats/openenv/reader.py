"""OpenEnv packages that envconvert wrote, read back: the same bytes, modes, links and empty folders."""

from pathlib import Path

from envconvert.formats import packages
from envconvert.formats.files import UnreadableSourceError
from envconvert.formats.harbor.packages import read_folders
from envconvert.formats.repository import TASKS
from envconvert.formats.taskset import Select, Taskset, every


def detect(source: Path) -> bool:
    """Whether `source` is a package that envconvert wrote."""
    return all((source / name).is_file() for name in ("openenv.yaml", packages.HEADER)) and (source / TASKS).is_dir()


def read(
    source: Path,
    *,
    name: str | None,
    reward_key: str | None,
    select: Select = every,
    dataset: str | None = None,
    split: str | None = None,
) -> Taskset:
    """The taskset of the package at `source`. `name` and `reward_key` override what it says of itself."""
    if dataset is not None:
        raise UnreadableSourceError(source, "a package is one dataset; leave out --dataset")
    if not detect(source):
        raise UnreadableSourceError(source, "it is no OpenEnv package that envconvert wrote; others cannot be read yet")
    return read_folders(
        source,
        source / packages.HEADER,
        source / TASKS,
        format="openenv",
        name=name,
        reward_key=reward_key,
        select=select,
        split=split,
    )
