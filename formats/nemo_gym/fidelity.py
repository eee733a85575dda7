"""What a task loses in a Gym root, and whether the root's server plays it."""

import re
from collections.abc import Iterator

from envconvert.formats import losses
from envconvert.formats.losses import Kind, Loss
from envconvert.formats.taskset import (
    Container,
    Steps,
    Task,
    network_of_agent,
    network_of_tests,
    own_container,
    resumes,
)

NAME = "nemo-gym"


def losses_of(task: Task) -> Iterator[Loss]:
    """The losses of `task`, each with the field where it stands."""
    for kind, field, value in _found(task):
        yield kind.loss(task=task.id, format=NAME, field=field, value=value)


Found = Iterator[tuple[Kind, str, object]]


def _found(task: Task) -> Found:
    passed = passed_through(task)
    if passed is not None:
        field, value = passed
        yield losses.PASSED_THROUGH, field, value
        if isinstance(task.interaction, Steps) and task.interaction.total != "final":
            yield losses.STEPS_LAST, "interaction.total", task.interaction.total or "mean"
        name = task.package.name if task.package else task.id
        if name.rpartition("/")[2] != task.id or re.search(r"[*?[]", task.id):
            yield losses.HARBOR_NAME, "task.name", name
        return
    if task.servers:
        yield losses.TOOLS_UNOFFERED, "servers", [server.name for server in task.servers]
    if task.container.skills:
        yield losses.SKILLS_UNTOLD, "container.skills", task.container.skills
    if task.tests.artifacts:
        yield losses.ARTIFACTS_STOPPED, "tests.artifacts", len(task.tests.artifacts)
    for field, box in _boxes(task):
        if box.gpus and box.gpu_types and len(box.gpu_types) > 1:
            yield losses.GPU_FIRST, f"{field}.gpu_types", list(box.gpu_types)
    if task.limits.agent is None:
        yield losses.AGENT_DAY, "limits.agent", task.limits.agent


def passed_through(task: Task) -> tuple[str, str] | None:
    """Why the server does not play `task`, as a field and what stands there; None where it does.

    package/taskset_server/supported.py tells the same from the task's folder.
    """
    return next(_unserved(task), None)


def _unserved(task: Task) -> Iterator[tuple[str, str]]:
    if isinstance(task.interaction, Steps):
        yield "interaction", f"{len(task.interaction.steps)} steps"
    if (tree := resumes(task)) is not None:
        yield "interaction.resumes", tree.entries[0].path
    for field, box in _boxes(task):
        if box.build and box.build.compose:
            yield f"{field}.build.compose", box.build.compose
        if box.os == "windows":
            yield f"{field}.os", box.os
        if box.tpu:
            yield f"{field}.tpu", box.tpu.type
        if box.workdir and not box.workdir.startswith("/"):
            yield f"{field}.workdir", f"the relative folder {box.workdir}"
        if box.image and not re.fullmatch(r"[A-Za-z0-9]\S*", box.image):
            yield f"{field}.image", f"{box.image}, which names no image"
    policies = [(f"{field}.network", box.network) for field, box in _boxes(task)]
    policies += [("container.agent_network", network_of_agent(task)), ("tests.network", network_of_tests(task))]
    for field, policy in policies:
        if policy.mode == "allowlist" and policy.hosts:
            yield field, f"allowlist: {', '.join(policy.hosts)}"


def _boxes(task: Task) -> list[tuple[str, Container]]:
    own = own_container(task)
    return [("container", task.container), *([("tests.container", own.container)] if own else [])]
