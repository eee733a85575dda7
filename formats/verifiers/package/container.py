"""What is done to a container before and after the agent: as Harbor's Docker environment does it, as root."""

import asyncio
import shlex
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import verifiers.v1 as vf

from .folder import Definition, FolderError
from .images import ImageConfig
from .task_toml import Healthcheck

LOGS = ("/logs/agent", "/logs/verifier", "/logs/artifacts")


class ContainerError(RuntimeError):
    """A command that prepares a container, or a copy out of it or into it, failed."""


class HealthcheckError(RuntimeError):
    """A container is not ready."""


def as_user(runtime: vf.Runtime, user: str | int | None) -> vf.Runtime:
    """The container seen as `user`, a name or a uid; None is the user of the image."""
    return runtime.with_user(None if user is None else str(user))


async def run_as_root(runtime: vf.Runtime, *command: str) -> str:
    """Run a command as root and return what it printed.

    Raises:
        ContainerError: it failed.
    """
    result = await runtime.with_user("root").run(list(command), {})
    if result.exit_code != 0:
        said = (result.stderr or result.stdout).strip()[-1000:]
        raise ContainerError(f"{shlex.join(command)!r} exited {result.exit_code} in the container: {said}")
    return str(result.stdout)


def move_to(runtime: vf.Runtime, workdir: str) -> None:
    """Make `workdir` the folder in which every later command of the container starts, whichever user runs it."""
    # Views that `with_user` makes share this config (runtimes/base.py), and the trace records the info.
    runtime.config = runtime.config.model_copy(update={"workdir": workdir})
    runtime.info.workdir = workdir


async def prepare(runtime: vf.Runtime, definition: Definition, image: ImageConfig, workdir: str | None) -> None:
    """Bring a new container into the state in which Harbor hands it over: entrypoint, working folder, logs and files.

    `workdir` is what the person running chose, which goes above the task's and the image's.

    Raises:
        FolderError: the working folder does not exist.
        ContainerError: it cannot be set up.
    """
    move_to(runtime, image.workdir)
    if not definition.has_compose:  # where the engine has started it
        await start_entrypoint(runtime, image)
    workdir = workdir or definition.environment.workdir or image.workdir
    if (await runtime.with_user("root").run(["test", "-d", workdir], {})).exit_code != 0:
        raise FolderError(
            f"task.toml: environment.workdir = {workdir!r} is no folder of the image; make it in the Dockerfile "
            "(WORKDIR)"
        )
    move_to(runtime, workdir)
    await run_as_root(runtime, "mkdir", "-p", *LOGS)
    await run_as_root(runtime, "chmod", "777", *LOGS)
    if not (definition.bundled or definition.has_dockerfile or definition.has_compose) and definition.folder.is_dir():
        await upload(runtime, definition.folder, workdir)


async def start_entrypoint(runtime: vf.Runtime, image: ImageConfig) -> None:
    """Start the image's ENTRYPOINT, with the command that Harbor's Compose file gives it, beside verifiers' own."""
    if image.entrypoint:
        # The output goes nowhere: in Harbor, too, it is in no file that the agent or the tests could read.
        await runtime.run_background([*image.entrypoint, "sh", "-c", "sleep infinity"], {}, "/dev/null")


async def wait_until_healthy(runtime: vf.Runtime, check: Healthcheck) -> None:
    """Run the command until it succeeds (harbor environments/base.py, run_healthcheck).

    Raises:
        HealthcheckError: it failed `retries` times after the start period.
        ContainerError: it did not end in its time, once; Harbor does not try again, and ends a whole task of steps.
    """
    begin = time.monotonic()
    failures = 0
    while True:
        starting = time.monotonic() < begin + check.start_period_sec
        seconds = int(check.timeout_sec) or None  # Harbor cuts it to whole seconds, and takes 0 for no limit
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                if (await runtime.run(["bash", "-c", check.command], {})).exit_code == 0:
                    return
        except TimeoutError:
            if not limit.expired():
                raise
            raise ContainerError(f"the healthcheck {check.command!r} took longer than {seconds} s") from None
        if not starting:
            failures += 1
            if failures >= check.retries:
                raise HealthcheckError(f"the healthcheck {check.command!r} failed {failures} times")
        await asyncio.sleep(check.start_interval_sec if starting else check.interval_sec)


async def empty(runtime: vf.Runtime, *folders: str, writable: bool = True) -> None:
    """Make the folders, without anything in them; `writable` by every user."""
    await run_as_root(runtime, "mkdir", "-p", *folders)
    await run_as_root(runtime, "find", *folders, "-mindepth", "1", "-delete")
    if writable:
        await run_as_root(runtime, "chmod", "777", *folders)


async def upload(
    runtime: vf.Runtime, source: Path, target: str, excluded: Callable[[Path], bool] = lambda path: False
) -> None:
    """Copy the file `source` to `target`, or what is in the folder `source` into it; root owns the copies.

    Modes, links and empty folders are kept, and what `excluded` names is left out with all that it holds. The archive
    is written straight into `docker cp`, so it is never in memory, and the image needs no tar.

    Raises:
        ContainerError: docker refused the copy.
    """
    await asyncio.to_thread(_copy_in, source, runtime.info.id, PurePosixPath(target), excluded)


def _copy_in(source: Path, container: str, target: PurePosixPath, excluded: Callable[[Path], bool]) -> None:
    # Unpacked at the root, for docker refuses a link that points out of the folder it unpacks into.
    command = ("docker", "cp", "-", f"{container}:/")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as docker:
        assert docker.stdin is not None
        try:
            with tarfile.open(fileobj=docker.stdin, mode="w|") as archive:
                _add(archive, source, target.relative_to("/"), excluded)
        except BrokenPipeError:
            pass  # docker stopped reading, and says below why
        except BaseException:
            docker.kill()
            raise
        _, stderr = docker.communicate()
    if docker.returncode != 0:
        raise ContainerError(f"copying {source.name} to {target} failed: {stderr.decode(errors='replace').strip()}")


def _add(archive: tarfile.TarFile, source: Path, name: PurePosixPath, excluded: Callable[[Path], bool]) -> None:
    if source.is_symlink() or not source.is_dir():
        archive.add(source, str(name), recursive=False, filter=_owned_by_root)
        return
    for entry in sorted(source.iterdir()):
        if excluded(entry):
            continue
        place = name / entry.name
        archive.add(entry, str(place), recursive=False, filter=_owned_by_root)
        if entry.is_dir() and not entry.is_symlink():
            _add(archive, entry, place, excluded)


def _owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry
