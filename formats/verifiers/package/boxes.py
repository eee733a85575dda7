"""The containers of a task, the agent's and the tests' own: provided, started, and taken down again."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import verifiers.v1 as vf
from verifiers.v1.runtimes import DockerConfig, provision_runtime

from . import compose, network
from .machine import RuntimeMachine
from .runner import container, images
from .runner.build_context import image_tag
from .runner.docker import DockerMachine
from .runner.folder import Definition
from .runner.machine import Box
from .runner.task_toml import EVERY_HOST, Allowed, Environment
from .runner.variables import resolve

MODULE = Path(__file__).parent.name
START = "/"
"""Where a container starts: verifiers would make a folder that is missing (runtimes/docker), and this one never is."""


def runtime_of(box: Box) -> vf.Runtime:
    """The agent's container as verifiers knows it."""
    return cast(RuntimeMachine, box.main).runtime


def image_name(definition: Definition) -> str:
    """What the image of the container is called on this machine, once it has been provided."""
    if definition.has_compose:
        return image_tag(MODULE, definition.folder, definition.docker_image)
    return images.image_of(definition, MODULE, "").name


def resources(environment: Environment) -> vf.TaskResources:
    """What the container is given, in verifiers' units. Of several types of GPU, the first."""
    gpus, types = environment.gpus, environment.gpu_types
    return vf.TaskResources(
        cpu=environment.cpus,
        memory=_gibibytes(environment.memory_mb),
        disk=_gibibytes(environment.storage_mb),
        gpu=None if not gpus else f"{types[0]}:{gpus}" if types else str(gpus),
    )


def _gibibytes(mebibytes: int | None) -> float | None:
    return None if mebibytes is None else mebibytes / 1024


def docker_config(definition: Definition, allowed: Allowed = EVERY_HOST) -> DockerConfig:
    """The runtime's configuration for a container of its own."""
    limits = resources(definition.environment).model_dump(exclude_none=True)
    config = DockerConfig(image=image_name(definition), workdir=START, **limits)
    return config if allowed == EVERY_HOST else network.with_limit(config, allowed)


def provide(definition: Definition, taskset: str, *, trusted: bool) -> Future[None]:
    """Have the image brought to this machine, or built, once in this process."""
    if definition.has_compose:
        name = image_name(definition)
        return images.once(name, lambda: asyncio.run(_build_services(definition, name, taskset, trusted)))
    return images.providing(images.image_of(definition, MODULE, taskset))


async def _build_services(definition: Definition, name: str, taskset: str, trusted: bool) -> None:
    async with compose.configured(definition, name, docker_config(definition), taskset, trusted=trusted) as project:
        project.build()


async def provided(definition: Definition, taskset: str, *, trusted: bool) -> None:
    """Wait until the image is on this machine; the event loop goes on meanwhile.

    Raises:
        ImageError: it is not here and cannot be pulled or built.
        ComposeError: its compose file is not valid, or not trusted.
    """
    # Shielded: a cancelled rollout must not cancel the build that others wait for.
    await asyncio.shield(asyncio.wrap_future(provide(definition, taskset, trusted=trusted)))


@asynccontextmanager
async def services(definition: Definition, config: DockerConfig, taskset: str, *, trusted: bool) -> AsyncIterator[Box]:
    """The services of a compose file, as they come up; `prepare` is still to be done."""
    await provided(definition, taskset, trusted=trusted)
    async with (
        compose.configured(definition, image_name(definition), config, taskset, trusted=trusted) as project,
        project.up() as (runtime, containers),
    ):
        machines = {service: DockerMachine(id) for service, id in containers.items()}
        yield Box(RuntimeMachine(runtime), machines, project.stop_main)


@asynccontextmanager
async def opened(definition: Definition, allowed: Allowed, taskset: str, *, trusted: bool) -> AsyncIterator[Box]:
    """A new container, ready for tests that may reach `allowed`, with the environment that its table gives it."""
    config = docker_config(definition, allowed)
    env = resolve("environment.env", definition.environment.env)
    if definition.has_compose:
        async with services(definition, config, taskset, trusted=trusted) as box:
            runtime_of(box).env = env
            await prepare(runtime_of(box), definition)
            yield box
        return
    await provided(definition, taskset, trusted=trusted)
    async with provision_runtime(config, env=env) as runtime:
        await prepare(runtime, definition)
        yield Box(RuntimeMachine(runtime))


async def prepare(runtime: vf.Runtime, definition: Definition) -> None:
    """Bring a container that has just started into the state in which Harbor hands it over."""
    image = await asyncio.to_thread(images.inspect, str(runtime.config.image))
    chosen = runtime.config.workdir  # ours, the image's, or what the person running chose (utils/compile.py)
    theirs = None if chosen == START or definition.has_compose else chosen
    machine = RuntimeMachine(runtime)
    machine.workdir = image.workdir
    if image.entrypoint and not definition.has_compose:  # where the engine has started it
        # With the command that Harbor's Compose file gives it, beside verifiers' own. The output goes nowhere: in
        # Harbor, too, it is in no file that the agent or the tests could read.
        await runtime.run_background([*image.entrypoint, "sh", "-c", "sleep infinity"], {}, "/dev/null")
    await container.prepare(machine, definition, theirs or definition.environment.workdir or image.workdir)
