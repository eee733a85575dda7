"""What a task loses in a Gym root, and whether the root's server plays it."""

import re
from collections.abc import Iterator
from itertools import chain

from envconvert.formats import losses
from envconvert.formats.harbor import one_turn
from envconvert.formats.losses import Kind, Loss
from envconvert.formats.taskset import ContainerTask, Steps

NAME = "nemo-gym"


def losses_of(task: ContainerTask) -> Iterator[Loss]:
    """The losses of `task`, each with the field where it stands."""
    for kind, field, value in _found(task):
        yield kind.loss(task=task.id, format=NAME, field=field, value=value)


Found = Iterator[tuple[Kind, str, object]]


def _found(task: ContainerTask) -> Found:
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
    for field, box in one_turn.boxes(task):
        if box.gpus and box.gpu_types and len(box.gpu_types) > 1:
            yield losses.GPU_FIRST, f"{field}.gpu_types", list(box.gpu_types)
    if task.limits.agent is None:
        yield losses.AGENT_DAY, "limits.agent", task.limits.agent


def passed_through(task: ContainerTask) -> tuple[str, str] | None:
    """Why the server does not play `task`, as a field and what stands there; None where it does."""
    containers = (found for field, box in one_turn.boxes(task) for found in one_turn.cannot_start(field, box))
    return next(chain(one_turn.not_played(task), containers), None)
