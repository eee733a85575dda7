"""What is done to a container before and after the agent: as Harbor's Docker environment does it, as root."""

import asyncio
import shlex
import time

from .folder import Definition, FolderError
from .machine import Machine, MachineError
from .task_toml import Healthcheck

LOGS = ("/logs/agent", "/logs/verifier", "/logs/artifacts")


class HealthcheckError(RuntimeError):
    """A container is not ready."""


async def run_as_root(machine: Machine, *command: str) -> str:
    """Run a command as root and return what it printed.

    Raises:
        MachineError: it failed.
    """
    result = await machine.run(command, user="root")
    if result.exit_code != 0:
        said = (result.stderr or result.stdout).strip()[-1000:]
        raise MachineError(f"{shlex.join(command)!r} exited {result.exit_code} in the container: {said}")
    return result.stdout


async def prepare(machine: Machine, definition: Definition, workdir: str) -> None:
    """Bring a container that has just started into the state in which Harbor hands it over: folder, logs and files.

    `workdir` is where commands start: the task's own choice, else the image's.

    Raises:
        FolderError: the working folder does not exist.
        MachineError: it cannot be set up.
    """
    if (await machine.run(["test", "-d", workdir], user="root")).exit_code != 0:
        raise FolderError(
            f"task.toml: environment.workdir = {workdir!r} is no folder of the image; make it in the Dockerfile "
            "(WORKDIR)"
        )
    machine.workdir = workdir
    await run_as_root(machine, "mkdir", "-p", *LOGS)
    await run_as_root(machine, "chmod", "777", *LOGS)
    if not (definition.bundled or definition.has_dockerfile or definition.has_compose) and definition.folder.is_dir():
        await machine.put(definition.folder, workdir)


async def wait_until_healthy(machine: Machine, check: Healthcheck, user: str | int | None = None) -> None:
    """Run the command until it succeeds (harbor environments/base.py, run_healthcheck).

    Raises:
        HealthcheckError: it failed `retries` times after the start period.
        MachineError: it did not end in its time, once; Harbor does not try again, and ends a whole task of steps.
    """
    begin = time.monotonic()
    failures = 0
    while True:
        starting = time.monotonic() < begin + check.start_period_sec
        seconds = int(check.timeout_sec) or None  # Harbor cuts it to whole seconds, and takes 0 for no limit
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                if (await machine.run(["bash", "-c", check.command], user=user)).exit_code == 0:
                    return
        except TimeoutError:
            if not limit.expired():
                raise
            raise MachineError(f"the healthcheck {check.command!r} took longer than {seconds} s") from None
        if not starting:
            failures += 1
            if failures >= check.retries:
                raise HealthcheckError(f"the healthcheck {check.command!r} failed {failures} times")
        await asyncio.sleep(check.start_interval_sec if starting else check.interval_sec)


async def empty(machine: Machine, *folders: str, writable: bool = True) -> None:
    """Make the folders, without anything in them; `writable` by every user."""
    await run_as_root(machine, "mkdir", "-p", *folders)
    await run_as_root(machine, "find", *folders, "-mindepth", "1", "-delete")
    if writable:
        await run_as_root(machine, "chmod", "777", *folders)
