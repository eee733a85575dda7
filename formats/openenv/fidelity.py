"""What a task loses as part of an OpenEnv package, and whether the package's server plays it."""

from collections.abc import Iterator
from itertools import chain

from envconvert.formats import losses
from envconvert.formats.files import Entry
from envconvert.formats.harbor import one_turn
from envconvert.formats.harbor.writer import files_of
from envconvert.formats.losses import Kind, Loss
from envconvert.formats.taskset import ContainerTask

NAME = "openenv"

EPISODE_SECONDS = 3600
"""The longest episode that a valid openenv.yaml can declare (openenv 0.10.0, validation/policies)."""


def losses_of(task: ContainerTask) -> Iterator[Loss]:
    """The losses of `task`, each with the field where it stands."""
    for kind, field, value in _found(task):
        yield kind.loss(task=task.id, format=NAME, field=field, value=value)


Found = Iterator[tuple[Kind, str, object]]


def _found(task: ContainerTask) -> Found:
    reason = not_served(task)
    if reason is not None:
        yield losses.HARNESS_ONLY, reason[0], reason[1]
    else:
        yield from _served(task)
    yield from _files(list(files_of(task)))


def not_served(task: ContainerTask) -> tuple[str, str] | None:
    """Why the server does not play `task`, as a field and what stands there; None where it does."""
    container = one_turn.cannot_start("container", task.container)
    return next(chain(one_turn.not_played(task), container), None)


def _served(task: ContainerTask) -> Found:
    if task.servers:
        yield losses.TOOLS_TOLD, "servers", [server.name for server in task.servers]
    if task.container.skills:
        yield losses.SKILLS_TOLD, "container.skills", task.container.skills
    if task.tests.artifacts:
        yield losses.ARTIFACTS_UNKEPT, "tests.artifacts", len(task.tests.artifacts)
    if task.container.gpus and task.container.gpu_types:
        yield losses.GPU_ANY, "container.gpu_types", list(task.container.gpu_types)
    if episode_seconds(task) > EPISODE_SECONDS:
        yield losses.EPISODE_LIMIT, "limits.agent", task.limits.agent


def episode_seconds(task: ContainerTask) -> float:
    """How long an episode may take once it has begun, as far as limits are said."""
    return sum(limit for limit in (task.limits.agent, task.limits.tests) if limit is not None)


def _files(entries: list[Entry]) -> Found:
    """What OpenEnv's tools do not take of a package's files: at most one loss of a kind."""
    link = next((entry for entry in entries if entry.kind == "link"), None)
    if link is not None:
        yield losses.VALIDATION_LINK, link.path, link.target
    names = ((entry.path, entry.path.rpartition("/")[2]) for entry in entries)
    left_out = next((path for path, name in names if _not_pushed(name)), None)
    if left_out is not None:
        yield losses.PUSH_EXCLUDED, left_out, left_out


def _not_pushed(name: str) -> bool:
    """Whether `openenv push` leaves out what has this name (cli/commands/push.py)."""
    return name.startswith(".") or name == "__pycache__" or name.endswith((".pyc", ".egg-info"))
