"""What a task loses as a Verifiers package, told before anything is written."""

import os
import re
from collections.abc import Iterator
from typing import Literal

import msgspec

from envconvert.formats import losses
from envconvert.formats.files import Tree
from envconvert.formats.losses import Kind, Loss, Severity
from envconvert.formats.taskset import (
    Container,
    ContainerTask,
    NetworkPolicy,
    Step,
    Steps,
    network_of_agent,
    network_of_tests,
    own_container,
    resumes,
)

NAME = "verifiers"

# What hatchling's wheels leave out whatever they are told (hatchling/builders/constants.py).
_EXCLUDED = {"__pycache__", ".venv", ".git", ".hg", ".hatch", ".tox", ".nox", ".ruff_cache", ".pytest_cache"} | {
    ".mypy_cache",
    ".pixi",
    ".DS_Store",
}


def losses_of(task: ContainerTask) -> Iterator[Loss]:
    """The losses of `task` beside its parts (parts.py), each with the field where it stands.

    Of a task that is refused, only why: what else would be worth noting if it were not is of no use.
    """
    found = list(_found(task))
    refused = [loss for loss in found if loss[0].severity is Severity.REFUSED]
    for kind, field, value in refused or found:
        yield kind.loss(task=task.id, format=NAME, field=field, value=value)
    native = task.native.get("harbor")
    if native is not None and not refused:
        yield from _wheel_losses(task.id, native.files)


Found = Iterator[tuple[Kind, str, object]]


def _found(task: ContainerTask) -> Found:
    steps = task.interaction.steps if isinstance(task.interaction, Steps) else (None,)
    yield from _container(task.container, "container")
    for step in steps:
        own = own_container(task, step)
        if own is not None:
            yield from _container(own.container, f"{_at(step)}tests.container")
        user = (step and step.user) or task.container.user
        if user not in (None, "root", 0):
            yield losses.AGENT_HOME, f"{_at(step)}container.user", user
    yield from _network(task, steps)
    if task.container.build and task.container.build.compose:
        yield losses.COMPOSE_TRUST, "container.build.compose", task.container.build.compose
    count = len(task.tests.artifacts) + sum(len(step.tests.artifacts) for step in steps if step)
    if count:
        yield losses.ARTIFACTS, "tests.artifacts", count
    if (tree := resumes(task)) is not None:
        yield from _trajectory(tree)


def _at(step: Step | None) -> str:
    return f"interaction.steps.{step.name}." if step else ""


def _container(container: Container, field: str) -> Found:
    if container.workdir and not container.workdir.startswith("/"):
        yield losses.WORKDIR_RELATIVE, f"{field}.workdir", container.workdir
    if container.image and not re.fullmatch(r"[A-Za-z0-9]\S*", container.image):
        yield losses.IMAGE_NAME, f"{field}.image", container.image
    if container.gpus and container.gpu_types and len(container.gpu_types) > 1:
        yield losses.GPU_TYPES, f"{field}.gpu_types", list(container.gpu_types)


def _network(task: ContainerTask, steps: tuple[Step | None, ...]) -> Found:
    """What is lost of the limits on the network: one loss, the worst, however many steps have it."""
    found = [loss for step in steps for loss in _step_network(task, step)]
    severities = list(Severity)
    yield from sorted(found, key=lambda loss: severities.index(loss[0].severity), reverse=True)[:1]


def _step_network(task: ContainerTask, step: Step | None) -> Found:
    own = own_container(task, step)
    agent = f"{_at(step)}container.network", network_of_agent(task, step)
    tests = f"{_at(step)}tests.network", network_of_tests(task, step)
    for field, policy in (agent, tests):
        if ranges := [host for host in policy.hosts or () if "/" in host]:
            yield losses.NETWORK_RANGE, field, ranges
    if own is None and agent[1].mode == "public" and tests[1].mode != "public":
        yield losses.NETWORK_TESTS, tests[0], tests[1].mode
    boxes = [(task.container, [agent, tests])] if own is None else [(task.container, [agent]), (own.container, [tests])]
    for box, phases in boxes:
        limited = [phase for phase in phases if phase[1].mode != "public"]
        if not limited:
            continue
        field, policy = limited[0]
        if box.build and box.build.compose:
            yield losses.NETWORK_COMPOSE, field, policy.mode
        reached = [what for _, policy in phases if (what := _reached(policy))]
        yield (
            (losses.NETWORK_PROXY, field, ", ".join(reached)) if reached else (losses.NETWORK_SETUP, field, policy.mode)
        )


def _reached(policy: NetworkPolicy) -> str:
    if policy.mode == "public":
        return "everything"
    return ", ".join(policy.hosts or ())


class _Text(msgspec.Struct):
    type: Literal["text"]
    text: str


class _Result(msgspec.Struct):
    source_call_id: str | None = None
    content: str | list[_Text] | None = None


class _Observation(msgspec.Struct):
    results: list[_Result]


class _Call(msgspec.Struct):
    tool_call_id: str
    function_name: str
    arguments: dict[str, msgspec.Raw]


class _Turn(msgspec.Struct):
    source: Literal["system", "user", "agent"]
    message: str | list[_Text]
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None
    observation: _Observation | None = None


class _Trajectory(msgspec.Struct):
    """What package/trajectory.py reads of a trajectory in Harbor's ATIF."""

    steps: list[_Turn]


def _trajectory(tree: Tree) -> Found:
    path = tree.entries[0].path
    try:
        msgspec.json.decode((tree.root / path).read_bytes(), type=_Trajectory)
    except msgspec.DecodeError as error:
        yield losses.TRAJECTORY_INVALID, "interaction.resumes", str(error)
    else:
        yield losses.TRAJECTORY_SHOWN, "interaction.resumes", path


def _wheel_losses(task: str, tree: Tree) -> Iterator[Loss]:
    """What a wheel of the package lacks; in place, or installed with -e, everything is there."""

    def loss(kind: Kind, path: str, value: object = None) -> Loss:
        return kind.loss(task=task, format=NAME, field=path, value=value)

    holders = {entry.path.rpartition("/")[0] for entry in tree.entries}
    for entry in tree.entries:
        name = entry.path.rpartition("/")[2]
        if name in _EXCLUDED:
            yield loss(losses.WHEEL_EXCLUDED, entry.path, name)
        elif losses.printable(name) != name:
            yield loss(losses.WHEEL_NAME, entry.path, name)
        elif entry.kind == "folder" and entry.path not in holders:
            yield loss(losses.WHEEL_FOLDER, entry.path, name)
        elif entry.kind == "link":
            yield loss(losses.WHEEL_LINK, entry.path, entry.target)
        elif entry.kind == "file":
            mode = os.lstat(f"{tree.place}/{entry.path}").st_mode & 0o7777
            if mode not in (0o644, 0o755):
                yield loss(losses.WHEEL_MODE, entry.path, f"{mode:o}")
