"""What a task loses as part of an OpenEnv package, and whether the package's server plays it."""

import re
from collections.abc import Iterator

from envconvert.formats import losses
from envconvert.formats.files import Tree
from envconvert.formats.losses import Kind, Loss
from envconvert.formats.taskset import (
    Container,
    NetworkPolicy,
    Steps,
    Task,
    network_of_agent,
    network_of_tests,
    own_container,
    resumes,
)

NAME = "openenv"

EPISODE_SECONDS = 3600
"""The longest episode that a valid openenv.yaml can declare (openenv 0.10.0, validation/policies)."""


def losses_of(task: Task) -> Iterator[Loss]:
    """The losses of `task`, each with the field where it stands."""
    for kind, field, value in _found(task):
        yield kind.loss(task=task.id, format=NAME, field=field, value=value)


Found = Iterator[tuple[Kind, str, object]]


def _found(task: Task) -> Found:
    reason = not_served(task)
    if reason is not None:
        yield losses.HARNESS_ONLY, reason[0], reason[1]
    else:
        yield from _served(task)
    native = task.native.get("harbor")
    if native is not None:
        yield from _files(native.files)


def not_served(task: Task) -> tuple[str, str] | None:
    """Why the server does not play `task`, as a field and what stands there; None where it does.

    server/tasks.py tells the same from the task's folder.
    """
    return next(_unserved(task), None)


def _unserved(task: Task) -> Iterator[tuple[str, str]]:
    if isinstance(task.interaction, Steps):
        yield "interaction", f"{len(task.interaction.steps)} steps"
    if (tree := resumes(task)) is not None:
        yield "interaction.resumes", tree.entries[0].path
    boxes = [("container", task.container)]
    if (own := own_container(task)) is not None:
        boxes.append(("tests.container", own.container))
    for field, box in boxes:
        if box.build and box.build.compose:
            yield f"{field}.build.compose", box.build.compose
        if box.os == "windows":
            yield f"{field}.os", box.os
        if box.tpu:
            yield f"{field}.tpu", box.tpu.type
    policies = [(f"{field}.network", box.network) for field, box in boxes]
    policies += [("container.agent_network", network_of_agent(task)), ("tests.network", network_of_tests(task))]
    for field, policy in policies:
        if hosts := _hosts(policy):
            yield field, f"allowlist: {', '.join(hosts)}"
    yield from _unusual(task.container)


def _hosts(policy: NetworkPolicy) -> tuple[str, ...]:
    return policy.hosts or () if policy.mode == "allowlist" else ()


def _unusual(container: Container) -> Iterator[tuple[str, str]]:
    if container.workdir and not container.workdir.startswith("/"):
        yield "container.workdir", f"the relative folder {container.workdir}"
    if container.image and not re.fullmatch(r"[A-Za-z0-9]\S*", container.image):
        yield "container.image", f"{container.image}, which names no image"


def _served(task: Task) -> Found:
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


def episode_seconds(task: Task) -> float:
    """How long an episode may take once it has begun, as far as limits are said."""
    return sum(limit for limit in (task.limits.agent, task.limits.tests) if limit is not None)


def _files(tree: Tree) -> Found:
    """What OpenEnv's tools do not take of a package's files: at most one loss of a kind."""
    link = next((entry for entry in tree.entries if entry.kind == "link"), None)
    if link is not None:
        yield losses.VALIDATION_LINK, link.path, link.target
    names = ((entry.path, entry.path.rpartition("/")[2]) for entry in tree.entries)
    left_out = next((path for path, name in names if _not_pushed(name)), None)
    if left_out is not None:
        yield losses.PUSH_EXCLUDED, left_out, left_out


def _not_pushed(name: str) -> bool:
    """Whether `openenv push` leaves out what has this name (cli/commands/push.py)."""
    return name.startswith(".") or name == "__pycache__" or name.endswith((".pyc", ".egg-info"))
