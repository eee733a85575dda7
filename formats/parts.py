"""The parts a task may have, as data: what plan, the docs and every writer compare a format with.

A format names the parts that it holds; a part that a task has and the format has not is a loss of the part's kind.
"""

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass

from envconvert.formats import losses
from envconvert.formats.losses import Kind, Loss
from envconvert.formats.taskset import ContainerTask, NetworkPolicy, Step, Steps, own_container, resumes


@dataclass(frozen=True, slots=True)
class TaskPart:
    """One thing that a task may say."""

    name: str
    field: str
    """Where it stands in the taskset."""
    said: Callable[[ContainerTask], object]
    """What a task says here; None or empty where it says nothing."""
    missing: Kind | None
    """The loss where a format cannot hold it; None for what every format holds so far."""


def _steps(task: ContainerTask) -> tuple[Step | None, ...]:
    return task.interaction.steps if isinstance(task.interaction, Steps) else (None,)


def _limits_network(task: ContainerTask) -> object:
    policies: list[tuple[str, NetworkPolicy | None]] = [("container", task.container.network)]
    policies += [("agent", task.container.agent_network), ("tests", task.tests.network)]
    for step in _steps(task):
        if step is not None:
            policies += [(f"{step.name}, agent", step.network), (f"{step.name}, tests", step.tests.network)]
    return ", ".join(f"{who}: {policy.mode}" for who, policy in policies if policy and policy.mode != "public")


def _separate(task: ContainerTask) -> object:
    own = next((own for step in _steps(task) if (own := own_container(task, step))), None)
    if own is None:
        return None
    if not own.bundled:
        return "a copy of the agent's container"
    return f"image {own.container.image}" if own.container.image else "an image made of tests/"


def _windows(task: ContainerTask) -> object:
    containers = [own.container for step in _steps(task) if (own := own_container(task, step))]
    return next((box.os for box in (task.container, *containers) if box.os == "windows"), None)


def _tpu(task: ContainerTask) -> object:
    containers = [own.container for step in _steps(task) if (own := own_container(task, step))]
    return next((box.tpu.type for box in (task.container, *containers) if box.tpu), None)


def _collect(task: ContainerTask) -> object:
    commands = [item.command for item in task.tests.collect]
    return commands + [item.command for step in _steps(task) if step for item in step.tests.collect]


def _artifacts(task: ContainerTask) -> object:
    return len(task.tests.artifacts) + sum(len(step.tests.artifacts) for step in _steps(task) if step)


def _healthcheck(task: ContainerTask) -> object:
    checks = [task.container.healthcheck, *(step.healthcheck for step in _steps(task) if step)]
    return next((check.command for check in checks if check), None)


def _trajectory(task: ContainerTask) -> object:
    tree = resumes(task)
    return tree and tree.entries[0].path


def _build(task: ContainerTask, kind: str) -> object:
    return getattr(task.container.build, kind, None)


PARTS: tuple[TaskPart, ...] = (
    TaskPart("image", "container.image", lambda t: t.container.image, None),
    TaskPart("dockerfile", "container.build", lambda t: _build(t, "dockerfile"), None),
    TaskPart("files", "container.files", lambda t: t.container.files and t.container.files.root.name, None),
    TaskPart("script reward", "reward", lambda t: t.tests.command, None),
    TaskPart("reference", "reference", lambda t: t.reference and t.reference.command, None),
    TaskPart("compose", "container.build.compose", lambda t: _build(t, "compose"), None),
    TaskPart("steps", "interaction", lambda t: isinstance(t.interaction, Steps) and len(t.interaction.steps), None),
    TaskPart("trajectory", "interaction.resumes", _trajectory, None),
    TaskPart("separate verifier", "tests.container", _separate, None),
    TaskPart("collect", "tests.collect", _collect, None),
    TaskPart("artifacts", "tests.artifacts", _artifacts, None),
    TaskPart("ignored files", "tests.ignores", lambda t: t.tests.ignores, None),
    TaskPart("mcp servers", "servers", lambda t: [server.name for server in t.servers], None),
    TaskPart("skills", "container.skills", lambda t: t.container.skills, None),
    TaskPart("healthcheck", "container.healthcheck", _healthcheck, None),
    TaskPart("network limits", "container.network", _limits_network, None),
    TaskPart("gpus", "container.gpus", lambda t: t.container.gpus, None),
    TaskPart("tpu", "container.tpu", _tpu, losses.TPU),
    TaskPart("windows", "container.os", _windows, losses.WINDOWS),
)


EVERY = frozenset(part.name for part in PARTS)


def missing(task: ContainerTask, holds: Set[str], format: str) -> Iterator[Loss]:
    """The losses of `task` in a format that holds the parts named in `holds`."""
    for part in PARTS:
        if part.missing is not None and part.name not in holds and (value := part.said(task)):
            yield part.missing.loss(task=task.id, format=format, field=part.field, value=value)
