"""Where the task folders of a source are, and what they are called."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from envconvert.formats.harbor.runner.shards import shard
from envconvert.formats.losses import Loss


class FoundTask(msgspec.Struct, frozen=True, gc=False):
    """A folder that is, or looks like, a task."""

    id: str
    source: str
    """The source folder, on disk."""
    place: str
    """Below the source folder, with `/`; empty where the source is the task."""
    loss: Loss | None = None
    """Why it is not read, where that is known before it is looked at."""

    @property
    def path(self) -> str:
        """On disk."""
        return f"{self.source}/{self.place}" if self.place else self.source


def holds_task(source: Path) -> bool:
    """Whether there is a task folder at or below `source`."""
    return (source / "task.toml").is_file() or next(_task_folders(str(source)), None) is not None


def find(source: Path) -> list[FoundTask]:
    """The task folders at `source`, by id as bytes. Empty where there are none."""
    here = str(source)
    if (source / "task.toml").is_file():
        return [FoundTask(source.name, here, "")]
    root, start = here, ""
    if (source / "tasks").is_dir() and not any(source.glob("*/task.toml")):
        root, start = f"{here}/tasks", "tasks/"
    found = [FoundTask(_id(path), here, start + path) for path in _task_folders(root)]
    return sorted(found, key=lambda item: os.fsencode(item.id))


def _id(path: str) -> str:
    """What the task at `path` below the scanned folder is called; a shard is no part of it."""
    folder, _, name = path.rpartition("/")
    return name if folder == shard(name) else path.replace("/", "--")


def _task_folders(root: str) -> Iterator[str]:
    """Paths below `root` of the folders that hold task.toml, and of those that should. Does not look inside a task."""
    pending = [""]
    while pending:
        folder = pending.pop()
        if folder and _is_plain_task(f"{root}/{folder}"):
            yield folder
            continue
        with os.scandir(f"{root}/{folder}") as entries:
            items = {item.name: item for item in entries}
        if "taskset.jsonl" in items:
            continue  # the tasks in there are those of another layout of ours
        if folder and ("task.toml" in items or _looks_like_task(set(items))):
            yield folder
            continue
        for name, item in items.items():
            path = f"{folder}/{name}" if folder else name
            if name == ".git":
                continue
            if item.is_dir(follow_symlinks=False):
                pending.append(path)
            elif item.is_symlink() and os.path.isfile(os.path.join(item.path, "task.toml")):
                yield path  # Harbor runs a task through a link; groups are not followed, they could lead in circles


def _is_plain_task(folder: str) -> bool:
    """What most folders are, seen without listing them."""
    return os.access(f"{folder}/task.toml", os.F_OK) and not os.access(f"{folder}/taskset.jsonl", os.F_OK)


def _looks_like_task(names: set[str]) -> bool:
    return "instruction.md" in names and not names.isdisjoint({"tests", "environment", "solution"})
