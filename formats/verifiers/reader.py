"""Verifiers packages that envconvert wrote, read back: the same bytes, modes, links and empty folders."""

from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from envconvert.formats.files import UnreadableSourceError
from envconvert.formats.harbor import reader as harbor
from envconvert.formats.harbor.tables import AuthorTable
from envconvert.formats.losses import printable
from envconvert.formats.names import is_taskset_name
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
    left_out: frozenset[str] = frozenset()
    """Ids of tasks that stand beside the package's own, for other formats."""


def find(source: Path) -> Path | None:
    """The module folder of the package at `source`, which may be that folder itself; None where there is none."""
    found = sorted(
        path.parent for path in [source / "taskset.jsonl", *source.glob("*/taskset.jsonl")] if path.is_file()
    )
    modules = [
        folder
        for folder in found
        if tasks_of(folder).is_dir()
        and (folder / "__init__.py").is_file()
        and not (folder / "openenv.yaml").is_file()  # it is an OpenEnv package
    ]
    return modules[0] if len(modules) == 1 else None


def tasks_of(module: Path) -> Path:
    """The task folders of the package whose module is `module`: its own, else those of its repository."""
    own = module / TASKS
    return own if own.is_dir() else module.parent.parent / TASKS


def detect(source: Path) -> bool:
    """Whether `source` is a package that envconvert wrote."""
    return find(source) is not None


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
    if dataset is not None or split is not None:
        raise UnreadableSourceError(source, "a package is one dataset without splits; leave out --dataset and --split")
    module = find(source)
    if module is None:
        raise UnreadableSourceError(
            source, "it is no Verifiers package that envconvert wrote; others cannot be read yet"
        )
    try:
        with open(module / "taskset.jsonl", "rb") as lines:
            header = msgspec.json.decode(lines.readline(), type=Header)
    except (OSError, msgspec.DecodeError) as error:
        raise UnreadableSourceError(module / "taskset.jsonl", f"its first line cannot be read: {error}") from None
    if not is_taskset_name(header.name):
        reason = (
            f"its name {header.name!r} is not ORG/NAME of ASCII letters, digits, `-`, `_` and `.`; correct it there"
        )
        raise UnreadableSourceError(module / "taskset.jsonl", reason)

    def offered(ids: Sequence[str]) -> Collection[str]:
        return select([id for id in ids if id not in header.left_out])

    tasks = harbor.read(
        tasks_of(module), name=name or header.name, reward_key=reward_key or header.reward_key, select=offered
    )
    return msgspec.structs.replace(
        tasks,
        version=header.version,
        description=header.description,
        licence=header.licence,
        authors=tuple(Author(name=author.name, email=author.email) for author in header.authors),
        keywords=tuple(header.keywords),
        source=TasksetSource(format="verifiers", uri=printable(source.name)),
    )
