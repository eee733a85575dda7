"""Episodes in containers of their own, which the local Docker runs: as many at once as it holds."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .episode import KEPT_BYTES
from .runner import container, images
from .runner.folder import Definition, Folder
from .runner.grading import grade
from .runner.launch import Launched, Stopped, create_network, launch, remove_network
from .runner.machine import Box, Ran
from .runner.task_toml import Allowed
from .runner.variables import resolve
from .tasks import settings

_lock = threading.Lock()
_networks: list[str] = []
_live: set[Launched] = set()


class DockerEpisode:
    """A task in a container that was started for it."""

    def __init__(self, folder: Folder, machine: Launched) -> None:
        """Play `folder` in `machine`, which is prepared."""
        self.folder = folder
        self.machine = machine

    async def attempt(self, command: str, seconds: float) -> Ran | Stopped:
        """Do what `Episode.attempt` says."""
        return await self.machine.attempt(command, seconds, KEPT_BYTES, self.folder.turns[0].user)

    async def grade(self) -> dict[str, float]:
        """Do what `Episode.grade` says."""
        return await grade(Box(self.machine), self.folder, self.folder.turns[0], _opened)

    def close(self) -> None:
        """Remove the container."""
        _remove(self.machine)


async def open_episode(folder: Folder) -> DockerEpisode:
    """Start the container of a task and bring it to where the agent begins.

    Raises:
        ImageError: its image cannot be had.
        HealthcheckError: it is not ready.
        MachineError: it cannot be started.
        LookupError: a variable of this machine is missing that task.toml refers to.
        FolderError: its working folder does not exist.
    """
    environment = folder.config.environment
    machine = await _started(folder.definition, environment.baseline)
    try:
        if environment.healthcheck is not None:
            await container.wait_until_healthy(machine, environment.healthcheck)
        await machine.allow(folder.turns[0].allowed)
    except BaseException:
        _remove(machine)
        raise
    return DockerEpisode(folder, machine)


async def _started(definition: Definition, allowed: Allowed) -> Launched:
    image = images.image_of(definition, settings().repository, settings().taskset)
    await images.provided(image)
    environment = definition.environment
    env = resolve("environment.env", environment.env)
    network = await asyncio.to_thread(_network)
    machine = await launch(image.name, environment, env, network, allowed, settings().taskset)
    _live.add(machine)
    try:
        workdir = environment.workdir or (await asyncio.to_thread(images.inspect, image.name)).workdir
        await container.prepare(machine, definition, workdir)
    except BaseException:
        _remove(machine)
        raise
    return machine


@asynccontextmanager
async def _opened(definition: Definition, allowed: Allowed) -> AsyncIterator[Box]:
    machine = await _started(definition, allowed)
    try:
        yield Box(machine)
    finally:
        _remove(machine)


def _network() -> str:
    with _lock:
        if not _networks:
            _networks.append(create_network(settings().taskset))
        return _networks[0]


def _remove(machine: Launched) -> None:
    _live.discard(machine)
    machine.remove()


def remove_all() -> None:
    """Remove every container and the network of this process."""
    while _live:
        _live.pop().remove()
    while _networks:
        remove_network(_networks.pop())
