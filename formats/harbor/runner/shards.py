"""Where the folder of a task is: `<root>/<id>`, or, where those would be too many in one, `<root>/<shard>/<id>`."""

import hashlib
import os
from pathlib import Path


def shard(id: str) -> str:
    """The name of the shard of a task: two hex digits, which follow from its id."""
    return hashlib.sha256(os.fsencode(id)).hexdigest()[:2]


def task_folder(root: Path, id: str) -> Path:
    """The folder of a task, which need not be there."""
    sharded = root / shard(id) / id
    return sharded if sharded.is_dir() else root / id


def task_ids(root: Path) -> list[str]:
    """The ids of the task folders in `root`, in the order of their bytes."""
    found: list[str] = []
    for entry in os.scandir(root):
        if entry.is_dir():
            found += (_inside(entry) if len(entry.name) == 2 else []) or [entry.name]
    return sorted(found, key=os.fsencode)


def _inside(folder: "os.DirEntry[str]") -> list[str]:
    """The ids of the tasks in `folder`; empty where it is no shard."""
    names = [inner.name for inner in os.scandir(folder.path) if shard(inner.name) == folder.name]
    return [name for name in names if os.path.isfile(f"{folder.path}/{name}/task.toml")]
