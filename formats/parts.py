"""The parts a task may have, as data: what plan, the docs and every writer compare a format with.

A format names the parts that it holds; a part that a task has and the format has not is a loss of the part's kind.
"""

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass

from envconvert.formats import losses
from envconvert.formats.losses import Kind, Loss
from envconvert.formats.taskset import NetworkPolicy, Steps, Task


@dataclass(frozen=True, slots=True)
class TaskPart:
    """One thing that a task may say."""

    name: str
    field: str
    """Where it stands in the taskset."""
    said: Callable[[Task], object]
    """What a task says here; None or empty where it says nothing."""
    missing: Kind | None
    """The loss where a format cannot hold it; None for what every format holds so far."""


def _limits_network(task: Task) -> object:
    policies: tuple[tuple[str, NetworkPolicy | None], ...] = (
        ("container", task.container.network),
        ("agent", task.container.agent_network),
        ("tests", task.tests.network),
    )
    return ", ".join(f"{who}: {policy.mode}" for who, policy in policies if policy and policy.mode != "public")


def _separate(task: Task) -> object:
    own = task.tests.container
    if not (task.tests.separate or (task.tests.separate is None and own is not None)):
        return None
    return f"image {own.image}" if own and own.image else "a copy of the agent's container, or tests/Dockerfile"


def _build(task: Task, kind: str) -> object:
    return getattr(task.container.build, kind, None)


PARTS: tuple[TaskPart, ...] = (
    TaskPart("image", "container.image", lambda t: t.container.image, None),
    TaskPart("dockerfile", "container.build", lambda t: _build(t, "dockerfile"), None),
    TaskPart("files", "container.files", lambda t: t.container.files and t.container.files.root.name, None),
    TaskPart("script reward", "reward", lambda t: t.tests.command, None),
    TaskPart("reference", "reference", lambda t: t.reference and t.reference.command, None),
    TaskPart("compose", "container.build.compose", lambda t: _build(t, "compose"), losses.COMPOSE),
    TaskPart(
        "steps",
        "interaction",
        lambda t: len(t.interaction.steps) if isinstance(t.interaction, Steps) else None,
        losses.STEPS,
    ),
    TaskPart(
        "trajectory",
        "interaction.resumes",
        lambda t: None if isinstance(t.interaction, Steps) else t.interaction.resumes,
        losses.TRAJECTORY,
    ),
    TaskPart("separate verifier", "tests.container", _separate, losses.SEPARATE_VERIFIER),
    TaskPart("collect", "tests.collect", lambda t: [c.command for c in t.tests.collect], losses.COLLECT),
    TaskPart("artifacts", "tests.artifacts", lambda t: t.tests.artifacts and len(t.tests.artifacts), losses.ARTIFACTS),
    TaskPart("ignored files", "tests.ignores", lambda t: t.tests.ignores, losses.HARBORIGNORE),
    TaskPart("mcp servers", "servers", lambda t: [server.name for server in t.servers], losses.MCP_SERVERS),
    TaskPart("skills", "container.skills", lambda t: t.container.skills, losses.SKILLS),
    TaskPart(
        "healthcheck",
        "container.healthcheck",
        lambda t: t.container.healthcheck and t.container.healthcheck.command,
        losses.HEALTHCHECK,
    ),
    TaskPart("network limits", "container.network", _limits_network, losses.NETWORK),
    TaskPart("gpus", "container.gpus", lambda t: t.container.gpus, losses.GPUS),
    TaskPart("tpu", "container.tpu", lambda t: t.container.tpu and t.container.tpu.type, losses.TPU),
    TaskPart(
        "windows", "container.os", lambda t: t.container.os if t.container.os == "windows" else None, losses.WINDOWS
    ),
)


EVERY = frozenset(part.name for part in PARTS)
BASIC = frozenset(part.name for part in PARTS if part.missing is None)


def missing(task: Task, holds: Set[str], format: str) -> Iterator[Loss]:
    """The losses of `task` in a format that holds the parts named in `holds`."""
    for part in PARTS:
        if part.missing is not None and part.name not in holds and (value := part.said(task)):
            yield part.missing.loss(task=task.id, format=format, field=part.field, value=value)
