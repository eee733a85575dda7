"""The taskset: the Harbor task folders in a folder."""

import logging
from collections.abc import Iterator
from pathlib import Path

import verifiers.v1 as vf
from pydantic import model_validator

from .runner.folder import FolderError
from .runner.shards import task_folder, task_ids
from .supported import read
from .task import FolderTask, FolderTaskConfig, manifest, task_data, tasks_root

logger = logging.getLogger(__name__)


class FolderTasksetConfig(vf.TasksetConfig):
    """Where the tasks are."""

    path: Path | None = None
    """Another folder of Harbor task folders than the package's own."""
    task: FolderTaskConfig = FolderTaskConfig()

    @model_validator(mode="after")
    def _tell_the_tasks(self) -> "FolderTasksetConfig":
        # Verifiers also makes tasks from their data and this config alone (serve/server.py, _build_task).
        if self.path is not None:
            self.task = self.task.model_copy(update={"path": self.path})
        return self


class FolderTaskset(vf.Taskset[FolderTask, FolderTasksetConfig]):
    """The task folders in a folder, in the order of their names."""

    def load(self) -> Iterator[FolderTask]:
        """Yield the tasks one by one. A folder that cannot be run is left out with a warning.

        Raises:
            FolderError: there is not a single task.
        """
        root = tasks_root(self.config.path)
        left_out = manifest().left_out if self.config.path is None else frozenset()
        empty = True
        for name in task_ids(root):
            if name in left_out:
                continue
            try:
                data = task_data(read(task_folder(root, name)))
            except (OSError, ValueError) as error:
                logger.warning("the task %r is left out: %s", name, error)
                continue
            empty = False
            yield FolderTask(data, self.config.task)
        if empty:
            raise FolderError(f"{root} has no task folder that can be run; the warnings above say why")
