"""Gym roots that envconvert wrote, read back: the same bytes, modes, links and empty folders."""

from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from envconvert.formats.files import UnreadableSourceError
from envconvert.formats.harbor import reader as harbor
from envconvert.formats.harbor.tables import AuthorTable
from envconvert.formats.losses import printable
from envconvert.formats.names import is_taskset_name
from envconvert.formats.nemo_gym.fidelity import NAME
from envconvert.formats.repository import TASKS
from envconvert.formats.taskset import Author, Select, Taskset, TasksetSource, every


class Header(msgspec.Struct, kw_only=True):
    """The first line of taskset.jsonl."""

    name: str
    version: str | None = None
    description: str = ""
    licence: str | None = None
    authors: list[AuthorTable] = []
    keywords: list[str] = []
    reward_key: str = "reward"
    sets: dict[str, list[str]] = {}
    """Ids by the name of a set; nothing where they tell no tasks apart."""
    left_out: frozenset[str] = frozenset()
    """Ids of tasks that stand beside the root's own, for other formats."""


def detect(source: Path) -> bool:
    """Whether `source` is a Gym root that envconvert wrote."""
    environments = any(source.glob("environments/*/config.yaml"))
    return environments and (source / "taskset.jsonl").is_file() and tasks_of(source).is_dir()


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
    header = _header(source / "taskset.jsonl")
    if split is not None and split not in header.sets:
        there = ", ".join(sorted(header.sets)) or "none"
        raise UnreadableSourceError(source / "taskset.jsonl", f"it has no split {split!r}; its splits: {there}")
    wanted = None if split is None else set(header.sets[split])

    def offered(ids: Sequence[str]) -> Collection[str]:
        return select([id for id in ids if id not in header.left_out and (wanted is None or id in wanted)])

    tasks = harbor.read(
        tasks_of(source), name=name or header.name, reward_key=reward_key or header.reward_key, select=offered
    )
    found = set(tasks.ids)
    return msgspec.structs.replace(
        tasks,
        version=header.version,
        description=header.description,
        licence=header.licence,
        authors=tuple(Author(name=author.name, email=author.email) for author in header.authors),
        keywords=tuple(header.keywords),
        sets={title: tuple(id for id in ids if id in found) for title, ids in header.sets.items()},
        source=TasksetSource(format=NAME, uri=printable(source.name)),
    )


def _header(file: Path) -> Header:
    try:
        with open(file, "rb") as lines:
            header = msgspec.json.decode(lines.readline(), type=Header)
    except (OSError, msgspec.DecodeError) as error:
        raise UnreadableSourceError(file, f"its first line cannot be read: {error}") from None
    if not is_taskset_name(header.name):
        reason = (
            f"its name {header.name!r} is not ORG/NAME of ASCII letters, digits, `-`, `_` and `.`; correct it there"
        )
        raise UnreadableSourceError(file, reason)
    return header
