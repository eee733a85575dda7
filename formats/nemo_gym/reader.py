"""Gym roots that envconvert wrote, read back: the same bytes, modes, links and empty folders, or the same replies."""

from pathlib import Path

from envconvert.formats import packages, replies
from envconvert.formats.files import UnreadableSourceError
from envconvert.formats.harbor.packages import read_folders
from envconvert.formats.nemo_gym.fidelity import NAME
from envconvert.formats.repository import TASKS
from envconvert.formats.taskset import Select, Taskset, every


def detect(source: Path) -> bool:
    """Whether `source` is a Gym root that envconvert wrote."""
    header = source / packages.HEADER
    if not header.is_file() or not any(source.glob("environments/*/config.yaml")):
        return False
    return tasks_of(source).is_dir() or replies.is_reply_file(header)


def tasks_of(source: Path) -> Path:
    """The task folders of the Gym root `source`: its own, else those of its repository."""
    own = source / TASKS
    return own if own.is_dir() else source.parent / TASKS


def read(
    source: Path,
    *,
    name: str | None,
    reward_key: str | None,
    select: Select = every,
    dataset: str | None = None,
    split: str | None = None,
) -> Taskset:
    """The taskset of the Gym root at `source`. `name` and `reward_key` override what it says of itself."""
    if dataset is not None:
        raise UnreadableSourceError(source, "a Gym root is one dataset; leave out --dataset")
    if not detect(source):
        raise UnreadableSourceError(source, "it is no Gym root that envconvert wrote; others cannot be read yet")
    header = source / packages.HEADER
    if replies.is_reply_file(header):
        return replies.read(source, header, format=NAME, name=name, reward_key=reward_key, select=select, split=split)
    return read_folders(
        source,
        header,
        tasks_of(source),
        format=NAME,
        name=name,
        reward_key=reward_key,
        select=select,
        split=split,
    )
