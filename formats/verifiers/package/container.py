"""What is done to a task's container before and after the agent: as Harbor's Docker environment does it, as root."""

import asyncio
import subprocess
import tarfile
from pathlib import Path, PurePosixPath

import verifiers.v1 as vf

from .images import ImageConfig

LOGS = ("/logs/agent", "/logs/verifier", "/logs/artifacts")


class ContainerError(RuntimeError):
    """A command that prepares the container failed."""


def as_user(runtime: vf.Runtime, user: str | int | None) -> vf.Runtime:
    """The container seen as `user`, a name or a uid; None is the user of the image."""
    return runtime.with_user(None if user is None else str(user))


async def run_as_root(runtime: vf.Runtime, *command: str) -> None:
    """Run a command as root.

    Raises:
        ContainerError: it failed.
    """
    result = await runtime.with_user("root").run(list(command), {})
    if result.exit_code != 0:
        said = (result.stderr or result.stdout).strip()[-1000:]
        raise ContainerError(f"{' '.join(command)!r} exited {result.exit_code} in the container: {said}")


def move_to(runtime: vf.Runtime, workdir: str) -> None:
    """Make `workdir` the folder in which every later command of the container starts, whichever user runs it."""
    # Views that `with_user` makes share this config (runtimes/base.py), and the trace records the info.
    runtime.config = runtime.config.model_copy(update={"workdir": workdir})
    runtime.info.workdir = workdir


async def start_entrypoint(runtime: vf.Runtime, image: ImageConfig) -> None:
    """Start the image's ENTRYPOINT, with the command that Harbor's Compose file gives it, beside verifiers' own."""
    if image.entrypoint:
        # The output goes nowhere: in Harbor, too, it is in no file that the agent or the tests could read.
        await runtime.run_background([*image.entrypoint, "sh", "-c", "sleep infinity"], {}, "/dev/null")


async def make_log_folders(runtime: vf.Runtime) -> None:
    """Make the folders of Harbor's contract, writable by every user."""
    await run_as_root(runtime, "mkdir", "-p", *LOGS)
    await run_as_root(runtime, "chmod", "777", *LOGS)


async def upload(runtime: vf.Runtime, source: Path, target: str) -> None:
    """Copy what is in the folder `source` into the folder `target`, over what is there; root owns the copies.

    Modes, links and empty folders are kept. The archive is written straight into `docker cp`, so it is never in memory,
    and the image needs no tar.

    Raises:
        ContainerError: docker refused the copy.
    """
    await asyncio.to_thread(_copy, source, runtime.info.id, PurePosixPath(target))


def _copy(source: Path, container: str, target: PurePosixPath) -> None:
    # Unpacked at the root, for docker refuses a link that points out of the folder it unpacks into.
    command = ("docker", "cp", "-", f"{container}:/")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as docker:
        assert docker.stdin is not None
        try:
            with tarfile.open(fileobj=docker.stdin, mode="w|") as archive:
                for entry in sorted(source.rglob("*")):
                    name = target.relative_to("/") / entry.relative_to(source).as_posix()
                    archive.add(entry, str(name), recursive=False, filter=_owned_by_root)
        except BrokenPipeError:
            pass  # docker stopped reading, and says below why
        except BaseException:
            docker.kill()
            raise
        _, stderr = docker.communicate()
    if docker.returncode != 0:
        raise ContainerError(f"copying {source.name}/ to {target} failed: {stderr.decode(errors='replace').strip()}")


def _owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry
