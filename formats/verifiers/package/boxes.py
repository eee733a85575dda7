"""The containers of a task, the agent's and the tests' own: provided, started, and taken down again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import verifiers.v1 as vf
from verifiers.v1.runtimes import DockerConfig, provision_runtime

from . import compose, container, images, network
from .build_context import image_tag
from .folder import Definition
from .task_toml import EVERY_HOST, Allowed, Environment
from .variables import resolve

MODULE = Path(__file__).parent.name
START = "/"
"""Where a container starts: verifiers would make a folder that is missing (runtimes/docker), and this one never is."""


@dataclass(frozen=True, slots=True)
class Box:
    """A running container, and the containers of the services around it by name, where a compose file has some."""

    main: vf.Runtime
    services: Mapping[str, str] = field(default_factory=dict)
    stop_main: Callable[[], Awaitable[None]] | None = None
    """Ends whatever still runs in `main`; None where there are no other services."""

    def container(self, service: str | None) -> str | None:
        """The id of the container of `service` (None is the agent's); None where there is no such service."""
        return str(self.main.info.id) if service in (None, compose.MAIN) else self.services.get(service)


def image_name(definition: Definition) -> str:
    """What the image of the container is called on this machine, once it has been provided."""
    if definition.has_dockerfile or definition.has_compose:
        return image_tag(MODULE, definition.folder, definition.docker_image)
    return str(definition.docker_image)


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
    name = image_name(definition)
    if definition.has_compose:
        return images.once(name, lambda: asyncio.run(_build_services(definition, name, taskset, trusted)))
    image = images.Image(
        name=name,
        docker_image=definition.docker_image,
        context=definition.folder if definition.has_dockerfile else None,
        taskset=taskset,
        timeout=definition.environment.build_timeout_sec,
    )
    return images.once(name, partial(images.provide, image))


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
    """The services of a compose file, as they come up; `container.prepare` is still to be done."""
    await provided(definition, taskset, trusted=trusted)
    async with (
        compose.configured(definition, image_name(definition), config, taskset, trusted=trusted) as project,
        project.up() as (runtime, containers),
    ):
        yield Box(runtime, containers, project.stop_main)


@asynccontextmanager
async def opened(definition: Definition, allowed: Allowed, taskset: str, *, trusted: bool) -> AsyncIterator[Box]:
    """A new container, ready for tests that may reach `allowed`, with the environment that its table gives it."""
    config = docker_config(definition, allowed)
    env = resolve("environment.env", definition.environment.env)
    if definition.has_compose:
        async with services(definition, config, taskset, trusted=trusted) as box:
            box.main.env = env
            await prepare(box.main, definition)
            yield box
        return
    await provided(definition, taskset, trusted=trusted)
    async with provision_runtime(config, env=env) as runtime:
        await prepare(runtime, definition)
        yield Box(runtime)


async def prepare(runtime: vf.Runtime, definition: Definition) -> None:
    """Bring a container that has just started into the state in which Harbor hands it over."""
    image = await asyncio.to_thread(images.inspect, str(runtime.config.image))
    chosen = runtime.config.workdir  # ours, the image's, or what the person running chose (utils/compile.py)
    theirs = None if chosen == START or definition.has_compose else chosen
    await container.prepare(runtime, definition, image, theirs)
