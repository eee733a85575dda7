"""What a task may not ask of verifiers: limits on the network that it cannot keep."""

from collections.abc import Iterator
from pathlib import Path

from .runner import folder as folders
from .runner.folder import HARBOR, Folder, FolderError
from .runner.task_toml import EVERY_HOST


def read(path: Path) -> Folder:
    """Read the task folder `path`. Raises as `runner.folder.read`, and `FolderError` for what is not supported."""
    folder = folders.read(path)
    if (problem := next(_unsupported(folder), None)) is not None:
        raise FolderError(problem)
    return folder


def _unsupported(folder: Folder) -> Iterator[str]:
    """Yield a sentence for everything that would make the task another task here than it is in Harbor."""
    for turn in folder.turns:
        where = f"step {turn.name!r}: " if turn.name else ""
        for field, allowed in (("the agent", turn.allowed), ("the tests", turn.tests_allowed)):
            if ranges := [host for host in allowed if "/" in host]:
                yield f"task.toml: {where}{field} may reach the networks {ranges}; name hosts, or {HARBOR}"
        if turn.own is None and turn.tests_allowed != EVERY_HOST and turn.allowed == EVERY_HOST:
            yield (
                f"task.toml: {where}the tests' network is limited while the agent's, in the same container, is not; "
                f'write verifier.environment_mode = "separate", or {HARBOR}'
            )
        shared = [turn.allowed] if turn.own else [turn.allowed, turn.tests_allowed]
        boxes = [(folder.definition, shared)] + ([(turn.own, [turn.tests_allowed])] if turn.own else [])
        for definition, phases in boxes:
            if definition.has_compose and any(allowed != EVERY_HOST for allowed in phases):
                yield (
                    f"task.toml: {where}the network is limited for the services of "
                    f"{definition.folder.name}/docker-compose.yaml, which verifiers cannot do; {HARBOR}"
                )
