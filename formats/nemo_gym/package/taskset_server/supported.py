"""What is served here: one turn in one Linux container, whose network is open or closed."""

from collections.abc import Iterator
from pathlib import Path

from .runner import folder as folders
from .runner.folder import HARBOR, Folder, FolderError
from .runner.task_toml import EVERY_HOST


def read(path: Path) -> Folder:
    """Read the task folder `path`. Raises as `runner.folder.read`, and `FolderError` for what is not served."""
    folder = folders.read(path)
    if (problem := next(_unsupported(folder), None)) is not None:
        raise FolderError(f"{problem}, which this server does not do; {HARBOR}, or the harbor environment beside this")
    return folder


def _unsupported(folder: Folder) -> Iterator[str]:
    if folder.has_steps:
        yield f"task.toml: there are {len(folder.config.steps)} steps"
        return
    if folder.trajectory is not None:
        yield f"{folder.trajectory.name} is an earlier conversation to go on from"
    [turn] = folder.turns
    for definition in (folder.definition, *([turn.own] if turn.own else [])):
        if definition.has_compose:
            yield f"{definition.folder.name}/docker-compose.yaml describes several containers"
    for who, allowed in (("the agent", turn.allowed), ("the tests", turn.tests_allowed)):
        if allowed not in (EVERY_HOST, ()):
            yield f"task.toml: {who} may reach {', '.join(allowed)} only"
    baselines = [folder.definition.environment.baseline, *([turn.own.environment.baseline] if turn.own else [])]
    for allowed in baselines:
        if allowed not in (EVERY_HOST, ()):
            yield f"task.toml: a container may reach {', '.join(allowed)} only while it is set up"
