"""The sandboxes of a task, the agent's and the tests' own: their images provided, started, and stopped again."""

import asyncio
import logging
import math
import uuid
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from nemo_gym.sandbox import AsyncSandbox, SandboxResources, SandboxSpec

from .machine import LABEL, SandboxMachine
from .runner import container, images
from .runner.folder import Definition, FolderError
from .runner.machine import Box
from .runner.task_toml import Allowed, Environment
from .runner.variables import resolve

logger = logging.getLogger(__name__)

_MIB_OF_GIB = 1024


@dataclass(frozen=True, slots=True)
class Sandboxes:
    """Where sandboxes come from: a provider of Gym, as its config names and configures it."""

    provider: Mapping[str, Any]
    """One key, the provider's name, and its own config."""
    metadata: Mapping[str, str]
    """What is said of every sandbox to a provider that keeps such."""
    repository: str
    """What images are called that are built here."""
    taskset: str

    @property
    def name(self) -> str:
        """The provider's name."""
        return next(iter(self.provider))

    @asynccontextmanager
    async def opened(self, definition: Definition, allowed: Allowed, seconds: float) -> AsyncIterator[Box]:
        """A new sandbox for at most `seconds`, as Harbor hands a container over; it is stopped with the block.

        Raises:
            FolderError: the provider cannot have the task's image, or the image has no such working folder.
            ImageError: the image is not on this machine and cannot be pulled or built.
            RuntimeError: the sandbox cannot be started or prepared.
            LookupError: a variable that `environment.env` refers to is not set.
        """
        environment = definition.environment
        env = resolve("environment.env", environment.env)
        image, config = await self._image(definition)
        label = uuid.uuid4().hex if self.name == "docker" else None
        sandbox = AsyncSandbox(self.provider)
        try:
            spec = SandboxSpec(
                image=image,
                ttl_s=seconds,
                ready_timeout_s=environment.build_timeout_sec,
                env=env,
                metadata=dict(self.metadata),
                resources=resources(environment),
                provider_options=self._options(label),
            )
            await _to_its_end(sandbox.start(spec))
            machine = SandboxMachine(sandbox, seconds, label)
            await machine.allow(allowed)  # before anything of the task's own runs
            if config is None:
                workdir = (await machine.run(["pwd"])).stdout.strip()
            else:
                workdir = machine.workdir = config.workdir
                if config.entrypoint:
                    # Gym runs a command of its own in its place. Here it gets the one of Harbor's compose file.
                    await machine.start([*config.entrypoint, "sh", "-c", "sleep infinity"])
            await container.prepare(machine, definition, environment.workdir or workdir)
            yield Box(machine)
        finally:
            await _stop(sandbox)

    async def _image(self, definition: Definition) -> tuple[str, images.ImageConfig | None]:
        """The image's name for the provider, and what it says of itself where this machine has it."""
        if self.name != "docker":
            if definition.docker_image is None:
                raise FolderError(
                    f"there is only a Dockerfile in {definition.folder.name}/, and the provider {self.name!r} builds "
                    "none; name a published image in environment.docker_image of task.toml, or use the provider docker"
                )
            return definition.docker_image, None
        image = images.image_of(definition, self.repository, self.taskset)
        await images.provided(image)
        return image.name, await asyncio.to_thread(images.inspect, image.name)

    def _options(self, label: str | None) -> dict[str, Any]:
        if label is None:
            return {}
        return {"run_args": ["--label", f"{LABEL}={label}", "--label", f"envconvert.taskset={self.taskset}"]}


async def _to_its_end(starting: Coroutine[Any, Any, AsyncSandbox]) -> None:
    """Wait for a sandbox to start, even when cancelled: before that it cannot be stopped."""
    started = asyncio.ensure_future(starting)
    try:
        await asyncio.shield(started)
    except asyncio.CancelledError:
        await asyncio.wait([started])
        raise


async def _stop(sandbox: AsyncSandbox) -> None:
    """Stop a sandbox. That it cannot be stopped says nothing of what ran in it, and it ends when its time is over."""
    try:
        await sandbox.stop()
    except RuntimeError as error:
        logger.warning("a sandbox is not stopped: %s", error)


def resources(environment: Environment) -> SandboxResources:
    """What the sandbox is given, in Gym's units. Of several types of GPU, the first."""
    storage, types = environment.storage_mb, environment.gpu_types
    return SandboxResources(
        cpu=environment.cpus,
        memory_mib=environment.memory_mb,
        disk_gib=None if storage is None else math.ceil(storage / _MIB_OF_GIB),
        gpu=environment.gpus or None,
        gpu_type=types[0] if environment.gpus and types else None,
    )
