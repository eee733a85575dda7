"""What the packages of other frameworks have in common that hold their tasks as Harbor folders."""

import re
from collections.abc import Collection, Sequence
from importlib.resources import files
from pathlib import Path

import msgspec

from envconvert.formats.files import Target
from envconvert.formats.harbor import reader
from envconvert.formats.losses import printable
from envconvert.formats.packages import copy_code, described, in_split, read_header
from envconvert.formats.taskset import Select, Taskset, TasksetSource


def read_folders(
    source: Path,
    file: Path,
    tasks: Path,
    *,
    format: str,
    name: str | None,
    reward_key: str | None,
    select: Select,
    split: str | None = None,
) -> Taskset:
    """The taskset of the package at `source`, whose taskset.jsonl is `file` and whose task folders are in `tasks`.

    `name` and `reward_key` override what it says of itself. Raises `UnreadableSourceError`.
    """
    said = read_header(file)
    wanted = in_split(said, file, split)

    def offered(ids: Sequence[str]) -> Collection[str]:
        return select([id for id in ids if id not in said.left_out and (wanted is None or id in wanted)])

    found = reader.read(tasks, name=name or said.name, reward_key=reward_key or said.reward_key, select=offered)
    named = msgspec.structs.replace(found, source=TasksetSource(format=format, uri=printable(source.name)))
    return described(named, said)


def copy_runner(target: Target, path: str) -> None:
    """Copy the code that runs task folders in containers to `path`, as a package of Python."""
    copy_code(files(__package__) / "runner", target, path)


def image_repository(module: str) -> str:
    """What the images are called that the package `module` builds (runner/build_context.py)."""
    return re.sub(r"[^a-z0-9]+", "_", module).strip("_")
