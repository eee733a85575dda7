"""What the packages that are written have in common, whatever they hold.

Beside the tasks stands taskset.jsonl, whose first line says what the taskset says as a whole; the code is the same for
every taskset, and a few files are rendered from templates.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal

import msgspec
import tomli_w
import yaml
from jinja2 import Environment, StrictUndefined

from envconvert.formats.files import Target, UnreadableSourceError
from envconvert.formats.names import is_taskset_name
from envconvert.formats.repository import SharedTasks
from envconvert.formats.taskset import Author, Taskset

HEADER = "taskset.jsonl"


class Header(msgspec.Struct, kw_only=True):
    """The first line of taskset.jsonl."""

    name: str
    version: str | None = None
    description: str = ""
    licence: str | None = None
    authors: tuple[Author, ...] = ()
    keywords: list[str] = []
    reward_key: str = "reward"
    sets: dict[str, list[str]] = {}
    """Ids by the name of a set; nothing where they tell no tasks apart."""
    left_out: frozenset[str] = frozenset()
    """Ids of tasks that stand beside the package's own, for other formats."""
    kind: Literal["server"] | None = None
    """`server`: the lines below are episodes on the server that the package is; None: the tasks say what they are."""


def in_split(said: Header, file: Path, split: str | None) -> frozenset[str] | None:
    """The ids that `split` of the package whose header is `said` has; None: all, as no split is asked for.

    Raises `UnreadableSourceError` where it has no such split; `file` is where the header stands.
    """
    if split is None:
        return None
    if split not in said.sets:
        there = ", ".join(sorted(said.sets)) or "none"
        raise UnreadableSourceError(file, f"it has no split {split!r}; its splits: {there}")
    return frozenset(said.sets[split])


def described(taskset: Taskset, said: Header) -> Taskset:
    """`taskset` with what the header says of it, its sets among it."""
    ids = set(taskset.ids)
    return msgspec.structs.replace(
        taskset,
        version=said.version,
        description=said.description,
        licence=said.licence,
        authors=said.authors,
        keywords=tuple(said.keywords),
        sets={title: tuple(id for id in members if id in ids) for title, members in said.sets.items()},
    )


def header(taskset: Taskset, shared: SharedTasks | None, sets: Mapping[str, Sequence[str]] | None = None) -> str:
    """The line for `taskset`. `sets` are those that the format keeps; None where it keeps none."""
    said: dict[str, Any] = {
        "name": taskset.name,
        "version": taskset.version,
        "description": taskset.description,
        "licence": taskset.licence,
        "authors": [{"name": author.name, "email": author.email} for author in taskset.authors],
        "keywords": list(taskset.keywords),
        "reward_key": taskset.reward.key,
    }
    if taskset.kind == "server":
        said["kind"] = taskset.kind
    if sets is not None:
        said["sets"] = sets
    if shared is not None:
        said["left_out"] = list(shared.left_out)
    return json.dumps(said, ensure_ascii=False) + "\n"


def sets_of(taskset: Taskset, ids: Iterable[str]) -> dict[str, list[str]]:
    """Those of `ids` that are in each set of `taskset`; nothing where its sets tell no tasks apart."""
    if not taskset.is_divided:
        return {}
    known = set(ids)
    return {name: [id for id in members if id in known] for name, members in taskset.sets.items()}


def read_header(file: Path) -> Header:
    """The header in `file`, a taskset.jsonl. Raises `UnreadableSourceError`."""
    try:
        with open(file, "rb") as lines:
            said = msgspec.json.decode(lines.readline(), type=Header)
    except (OSError, msgspec.DecodeError) as error:
        raise UnreadableSourceError(file, f"its first line cannot be read: {error}") from None
    if not is_taskset_name(said.name):
        reason = f"its name {said.name!r} is not ORG/NAME of ASCII letters, digits, `-`, `_` and `.`; correct it there"
        raise UnreadableSourceError(file, reason)
    return said


def is_server_file(file: Path) -> bool:
    """Whether the lines of a taskset.jsonl, below the first, are episodes on a server."""
    with open(file, "rb") as lines:
        return is_server_header(lines.readline())


class _Kind(msgspec.Struct):
    """Of a header, what its lines are."""

    kind: str | None = None


def is_server_header(line: bytes) -> bool:
    """Whether the first line of a taskset.jsonl says that those below are episodes on a server."""
    try:
        return msgspec.json.decode(line, type=_Kind).kind == "server"
    except msgspec.DecodeError:
        return False


TEMPLATES = Environment(undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True, autoescape=False)
TEMPLATES.filters["toml"] = lambda text: tomli_w.dumps({"_": text}).removeprefix("_ = ").rstrip("\n")
TEMPLATES.filters["yaml"] = lambda text: yaml.safe_dump(text, default_style='"', width=10**9).rstrip("\n")


def copy_code(folder: Traversable, target: Target, path: str, suffixes: tuple[str, ...] = (".py",)) -> None:
    """Copy the files of `folder` that end in `suffixes` to `path`, as they stand; empty is the root of `target`."""
    for source in sorted(folder.iterdir(), key=lambda source: source.name):
        if source.name.endswith(suffixes):
            target.write(f"{path}/{source.name}" if path else source.name, source.read_bytes())


def pip_version(version: str | None) -> str:
    """A version that pip takes: the taskset's own where it is one."""
    return (
        version if version and re.fullmatch(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?", version) else "0.1.0"
    )


def about(taskset: Taskset, framework: str) -> str:
    """A line that describes the taskset: its own description, else what it is."""
    return " ".join(taskset.description.split()) or f"{taskset.name} for {framework}."
