"""The tasks of taskset.jsonl, and how they are chosen. Lines are read when they are wanted: they hold media too."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from . import chat

ROOT = Path(__file__).resolve().parent.parent
"""The package, with taskset.jsonl in it."""

SPLIT = "train"
"""The one split of a taskset that has none."""

REST = "unassigned"
"""The split of tasks that are in none of several."""


class Catalogue:
    """The tasks, in the order of the file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._places: dict[str, int] = {}
        with open(file, "rb") as lines:
            said = json.loads(lines.readline())
            place = lines.tell()
            for line in lines:
                self._places[json.loads(line)["id"]] = place
                place += len(line)
        self.name: str = said["name"]
        self.ids = list(self._places)
        self.splits: dict[str, list[str]] = said["sets"] or {SPLIT: self.ids}
        assigned = {id for ids in self.splits.values() for id in ids}
        if rest := [id for id in self.ids if id not in assigned]:
            self.splits[REST] = [*self.splits.get(REST, ()), *rest]

    def task(self, id: str) -> dict[str, Any]:
        """All that the file says of a task, its answer included."""
        with open(self._file, "rb") as lines:
            lines.seek(self._places[id])
            task: dict[str, Any] = json.loads(lines.readline())
        return task

    def split(self, name: str) -> list[str]:
        """The ids of a split, in order. Raises ValueError where there is no such split."""
        if name not in self.splits:
            raise ValueError(f"there is no split {name!r}; there are {', '.join(self.splits)}")
        return self.splits[name]

    def at(self, split: str, index: int) -> dict[str, Any]:
        """The task at `index`, from 0, of a split, as the Task API gives it. Raises IndexError."""
        id = self._id_at(split, index)
        task = self.task(id)
        shown = {"prompt": chat.messages(task["prompt"]), "tools": chat.tools(task.get("tools", ()))}
        return {"id": id, "split": split, "index": index, **shown}

    def chosen(self, task_id: str | None, split: str | None, index: int | None, seed: int | None) -> str:
        """The id of the task that is asked for: by its id, else by split and index, else by the seed.

        Raises:
            ValueError: there is no such task.
            IndexError: the split has no such index.
        """
        if (split is None) != (index is None):
            raise ValueError(f"split and index go together; there are the splits {', '.join(self.splits)}")
        if task_id is not None:
            if task_id not in self._places:
                raise ValueError(f"there is no task {task_id!r}; there are {_some(self.ids)}")
            return task_id
        if split is not None and index is not None:
            return self._id_at(split, index)
        return self.ids[(seed or 0) % len(self.ids)]

    def _id_at(self, split: str, index: int) -> str:
        ids = self.split(split)
        if not 0 <= index < len(ids):
            raise IndexError(f"there is no task {index} in the split {split!r}, which has {len(ids)}")
        return ids[index]


@cache
def catalogue() -> Catalogue:
    """The tasks of this package."""
    return Catalogue(ROOT / "taskset.jsonl")


def _some(ids: list[str]) -> str:
    return ", ".join(ids[:10]) + (f" and {len(ids) - 10} more" if len(ids) > 10 else "")
