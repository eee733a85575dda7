"""Containers of the local Docker, by its command."""

import asyncio
import json
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from .archives import pack, unpack
from .machine import Excluded, MachineError, Ran, nothing
from .task_toml import EVERY_HOST, Allowed


class DockerMachine:
    """A container that docker knows by its id or name. `workdir`: empty is the image's.

    What it may reach is changed by taking it off its `network` and putting it back: everything, or nothing.
    """

    def __init__(self, container: str, workdir: str = "", network: str = "bridge") -> None:
        self.container = container
        self.workdir = workdir
        self._network = network

    async def run(
        self, command: Sequence[str], env: Mapping[str, str] | None = None, user: str | int | None = None
    ) -> Ran:
        """Run a command by `docker exec`. Raises `MachineError` where docker cannot."""
        options = ["--workdir", self.workdir] if self.workdir else []
        options += [] if user is None else ["--user", str(user)]
        for name, value in (env or {}).items():
            options += ["--env", f"{name}={value}"]
        return await docker("exec", *options, self.container, *command)

    async def put(self, source: Path, target: str, excluded: Excluded = nothing) -> None:
        """Copy into the container."""
        await asyncio.to_thread(copy_in, self.container, source, target, excluded)

    async def take(self, source: str, target: Path, exclude: Sequence[str] = ()) -> None:
        """Copy out of the container."""
        await asyncio.to_thread(copy_out, self.container, source, target, exclude)

    async def allow(self, allowed: Allowed) -> None:
        """Put the container on Docker's network, or take it off. Raises `MachineError` for a list of hosts."""
        if allowed not in (EVERY_HOST, ()):
            raise MachineError(f"docker cannot limit a container to the hosts {', '.join(allowed)}")
        listed = await docker("inspect", "--format", "{{json .NetworkSettings.Networks}}", self.container)
        if (self._network in json.loads(listed.stdout)) != bool(allowed):
            change = "connect" if allowed else "disconnect"
            done = await docker("network", change, self._network, self.container)
            if done.exit_code != 0:
                raise MachineError(f"docker network {change} failed: {done.stderr.strip()}")


async def docker(*arguments: str) -> Ran:
    """Run a docker command to its end. A cancelled call ends it; what it started in a container goes on.

    Raises:
        MachineError: the container does not run any more.
    """
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        "docker", *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
    )
    try:
        stdout, stderr = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    done = Ran(int(process.returncode or 0), stdout.decode(errors="replace"), stderr.decode(errors="replace"))
    if arguments[0] == "exec" and done.exit_code != 0 and done.stderr.startswith("Error response from daemon"):
        raise MachineError(done.stderr.strip())
    return done


def docker_now(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a docker command to its end, in this thread. Raises FileNotFoundError where there is none."""
    return subprocess.run(
        ("docker", *arguments), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
    )


def copy_in(container: str, source: Path, target: str, excluded: Excluded) -> None:
    """Do what `Machine.put` says. The archive goes straight into `docker cp`, and the image needs no tar.

    Raises:
        MachineError: docker refused the copy.
    """
    command = ("docker", "cp", "-", f"{container}:/")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        try:
            pack(source, target, excluded, process.stdin)
        except BrokenPipeError:
            pass  # docker stopped reading, and says below why
        except BaseException:
            process.kill()
            raise
        _, stderr = process.communicate()
    if process.returncode != 0:
        raise MachineError(f"copying {source.name} to {target} failed: {stderr.decode(errors='replace').strip()}")


def copy_out(container: str, source: str, target: Path, exclude: Sequence[str]) -> None:
    """Do what `Machine.take` says. Only with `exclude` must the image have a tar.

    Raises:
        MachineError: there is no such path, or docker refused the copy.
    """
    is_folder = docker_now("exec", "--user", "root", container, "test", "-d", source).returncode == 0
    if is_folder and exclude:
        excluded = [f"--exclude={pattern}" for pattern in exclude]
        command = ["docker", "exec", "--user", "root", container, "tar", "-cf", "-", *excluded, "-C", source, "."]
    else:
        command = ["docker", "cp", f"{container}:{source}{'/.' if is_folder else ''}", "-"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            unpack(process.stdout, target if is_folder else target.parent, None if is_folder else target.name)
        except tarfile.ReadError:
            pass  # nothing came, and docker says below why
        except BaseException:
            process.kill()
            raise
        _, stderr = process.communicate()
    if process.returncode != 0:
        raise MachineError(stderr.decode(errors="replace").strip())
