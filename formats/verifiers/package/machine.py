"""A container of verifiers, as the runner sees it."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import verifiers.v1 as vf

from . import network
from .runner.docker import copy_in, copy_out
from .runner.machine import Excluded, Ran, nothing
from .runner.task_toml import Allowed


class RuntimeMachine:
    """The container behind a runtime of verifiers, which is Docker's."""

    def __init__(self, runtime: vf.Runtime) -> None:
        self.runtime = runtime

    @property
    def workdir(self) -> str:
        """The folder in which every command starts, whichever user runs it."""
        return str(self.runtime.config.workdir)

    @workdir.setter
    def workdir(self, folder: str) -> None:
        # Views that `with_user` makes share this config (runtimes/base.py), and the trace records the info.
        self.runtime.config = self.runtime.config.model_copy(update={"workdir": folder})
        self.runtime.info.workdir = folder

    async def run(
        self, command: Sequence[str], env: Mapping[str, str] | None = None, user: str | int | None = None
    ) -> Ran:
        """Run a command through verifiers."""
        view = self.runtime.with_user(None if user is None else str(user))
        done = await view.run(list(command), dict(env or {}))
        return Ran(int(done.exit_code), str(done.stdout), str(done.stderr))

    async def put(self, source: Path, target: str, excluded: Excluded = nothing) -> None:
        """Copy into the container."""
        await asyncio.to_thread(copy_in, str(self.runtime.info.id), source, target, excluded)

    async def take(self, source: str, target: Path, exclude: Sequence[str] = ()) -> None:
        """Copy out of the container."""
        await asyncio.to_thread(copy_out, str(self.runtime.info.id), source, target, exclude)

    async def allow(self, allowed: Allowed) -> None:
        """Limit the network by verifiers' proxy, or leave it open."""
        await network.allow(self.runtime, allowed)
