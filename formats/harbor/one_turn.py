"""What a server can play that gives an agent one turn in one Linux container, and leaves the rest to Harbor.

The servers that are written tell the same from a task's folder: package/server/tasks.py of OpenEnv, and
package/taskset_server/supported.py of NeMo Gym.
"""

import re
from collections.abc import Iterator

from envconvert.formats.taskset import (
    Container,
    ContainerTask,
    Steps,
    network_of_agent,
    network_of_tests,
    own_container,
    resumes,
)


def boxes(task: ContainerTask) -> list[tuple[str, Container]]:
    """The containers of a task of one turn, by the field where they stand."""
    own = own_container(task)
    return [("container", task.container), *([("tests.container", own.container)] if own else [])]


def not_played(task: ContainerTask) -> Iterator[tuple[str, str]]:
    """Why such a server does not play `task`: fields, and what stands there."""
    if isinstance(task.interaction, Steps):
        yield "interaction", f"{len(task.interaction.steps)} steps"
    if (tree := resumes(task)) is not None:
        yield "interaction.resumes", tree.entries[0].path
    for field, box in boxes(task):
        if box.build and box.build.compose:
            yield f"{field}.build.compose", box.build.compose
        if box.os == "windows":
            yield f"{field}.os", box.os
        if box.tpu:
            yield f"{field}.tpu", box.tpu.type
    policies = [(f"{field}.network", box.network) for field, box in boxes(task)]
    policies += [("container.agent_network", network_of_agent(task)), ("tests.network", network_of_tests(task))]
    for field, policy in policies:
        if policy.mode == "allowlist" and policy.hosts:
            yield field, f"allowlist: {', '.join(policy.hosts)}"


def cannot_start(field: str, box: Container) -> Iterator[tuple[str, str]]:
    """What `box`, which stands in `field`, says that no container can be started with."""
    if box.workdir and not box.workdir.startswith("/"):
        yield f"{field}.workdir", f"the relative folder {box.workdir}"
    if box.image and not re.fullmatch(r"[A-Za-z0-9]\S*", box.image):
        yield f"{field}.image", f"{box.image}, which names no image"
