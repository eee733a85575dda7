"""The tasks beside this package: which of them are served, how they are chosen, and why others are not served."""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from .runner.folder import Folder, read
from .runner.shards import task_folder, task_ids
from .runner.task_toml import EVERY_HOST

logger = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parent.parent
"""The package, with `tasks/` in it."""

SPLIT = "train"
"""The one split of a taskset that has none."""


class Settings(BaseModel):
    """settings.json: what the task folders do not say."""

    taskset: str
    package: str
    repository: str
    """What images that are built here are called."""
    reward_key: str
    splits: dict[str, list[str]]
    """Ids of tasks by the name of a split, in order; empty where there are none."""
    left_out: frozenset[str]
    """Ids of tasks in `tasks/` that are there for other frameworks only."""


@cache
def settings() -> Settings:
    """The package's settings."""
    return Settings.model_validate(json.loads(Path(__file__).with_name("settings.json").read_text(encoding="utf-8")))


WhyNot = Callable[[Folder], str | None]
"""Why a task cannot be played in some way; None where it can."""


def why_not_served(folder: Folder) -> str | None:
    """Why no server of this package plays a task. It is in the package all the same, for Harbor."""
    if folder.has_steps:
        return "it has several steps"
    if folder.trajectory is not None:
        return "it goes on from an earlier trajectory"
    [turn] = folder.turns
    definitions = [folder.definition] + ([turn.own] if turn.own else [])
    if any(definition.has_compose for definition in definitions):
        return "its container is one of several, of a compose file"
    policies = [turn.allowed, turn.tests_allowed, *(definition.environment.baseline for definition in definitions)]
    for allowed in policies:
        if allowed not in (EVERY_HOST, ()):
            return f"its network is limited to {', '.join(allowed)}"
    return None


@dataclass(frozen=True, slots=True)
class Served:
    """A task that is served, and what its agent is told first."""

    id: str
    prompt: str


class Catalogue:
    """The tasks that one way of playing them can serve, in the order of their ids as bytes."""

    def __init__(self, why_not: WhyNot) -> None:
        self.served: dict[str, Served] = {}
        self.refused: dict[str, str] = {}
        for name in _names():
            if name in settings().left_out:
                continue
            try:
                folder = read(task_folder(ROOT / "tasks", name))
            except (OSError, ValueError) as error:
                self.refused[name] = f"{error}{_elsewhere(name)}"
                continue
            if (reason := why_not_served(folder)) is not None:
                self.refused[name] = f"{reason}{_elsewhere(name)}"
            elif (reason := why_not(folder)) is not None:
                self.refused[name] = f"{reason}. A server that is given a Docker engine plays it, as README.md says"
            else:
                self.served[name] = Served(name, folder.turns[0].instruction)
        if self.refused:
            logger.warning("%d tasks of %d are not served here", len(self.refused), len(_names()))
        self.splits = {split: [id for id in ids if id in self.served] for split, ids in settings().splits.items()} or {
            SPLIT: list(self.served)
        }

    def split(self, name: str) -> list[str]:
        """The ids of a split, in order. Raises ValueError where there is no such split."""
        if name not in self.splits:
            raise ValueError(f"there is no split {name!r}; there are {', '.join(self.splits)}")
        return self.splits[name]

    def at(self, split: str, index: int) -> dict[str, Any]:
        """The task at `index`, from 0, of a split, as the Task API gives it. Raises IndexError."""
        ids = self.split(split)
        if not 0 <= index < len(ids):
            raise IndexError(f"there is no task {index} in the split {split!r}, which has {len(ids)}")
        return {"id": ids[index], "split": split, "index": index, "prompt": self.served[ids[index]].prompt}

    def chosen(self, task_id: str | None, split: str | None, index: int | None, seed: int | None) -> str:
        """The id of the task that is asked for: by its id, else by split and index, else by the seed.

        Raises:
            ValueError: there is no such task, or it is not served.
            IndexError: the split has no such index.
        """
        if (split is None) != (index is None):
            raise ValueError(f"split and index go together; there are the splits {', '.join(self.splits)}")
        if task_id is not None:
            if task_id in self.refused:
                raise ValueError(f"{task_id} is not served here: {self.refused[task_id]}")
            if task_id not in self.served:
                raise ValueError(f"there is no task {task_id!r}; there are {_some(self.served)}")
            return task_id
        if split is not None and index is not None:
            return str(self.at(split, index)["id"])
        if not self.served:
            raise ValueError(f"no task is served here. The first: {next(iter(self.refused.items()), None)}")
        return list(self.served)[(seed or 0) % len(self.served)]


@cache
def _names() -> list[str]:
    return task_ids(ROOT / "tasks")


@cache
def _numbers() -> dict[str, int]:
    """How OpenEnv numbers the folders: by their paths, hidden ones left out (openenv/harbor/tasks.py)."""
    shown = [name for name in _names() if not name.startswith(".")]
    shown.sort(key=lambda name: task_folder(ROOT / "tasks", name).parts)
    return {name: number for number, name in enumerate(shown)}


def _elsewhere(id: str) -> str:
    """How a task is run that is not served."""
    number = _numbers().get(id)
    return f". Harbor runs it: openenv harbor rollout --dataset {ROOT} --task-index {number} --llm-url URL"


def _some(ids: dict[str, Served]) -> str:
    shown = list(ids)[:10]
    return ", ".join(shown) + (f" and {len(ids) - len(shown)} more" if len(ids) > len(shown) else "")
