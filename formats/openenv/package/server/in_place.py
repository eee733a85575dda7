"""Episodes in the container that the server itself runs in: one at a time, of the tasks that share its image.

The image is made by the Dockerfile beside this file from the tasks' own. The server is root and all that belongs to it
is in HOME, which only root can enter. Commands of the agent run as a user who may write to the working folder and to
what is open to everyone; at each reset its processes are ended, and all of that is put back as it was.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import stat
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cache
from pathlib import Path
from typing import IO, Any

from .episode import KEPT_BYTES
from .runner import container, images
from .runner.archives import pack
from .runner.folder import Definition, Folder, read
from .runner.grading import grade
from .runner.launch import Output, Stopped
from .runner.machine import Box, Excluded, MachineError, Ran, nothing
from .runner.shards import task_folder
from .runner.task_toml import EVERY_HOST, Allowed
from .runner.variables import resolve
from .tasks import ROOT, settings

HOME = Path("/opt/envconvert")
"""Where the image has the server, its Python and the tasks."""

AGENT = 64000
"""The agent's user and group (Dockerfile)."""

AGENT_HOME = "/home/agent"

_SYSTEM = {"/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/proc", "/run", "/sbin", "/sys"}
_SYSTEM |= {"/usr", "/var"}
"""Folders that cannot be given to an agent."""

_PRIVATE = ("/tests", "/solution", "/logs")
_GRACE_SECONDS = 0.2
"""How long what a command has started in the background may still be heard when the command has ended."""


def is_own_image() -> bool:
    """Whether this process is the server of such an image."""
    return os.geteuid() == 0 and (HOME / "task").is_file() and ROOT.is_relative_to(HOME)


def why_not(folder: Folder) -> str | None:
    """Why a task cannot be played in this container."""
    [turn] = folder.turns
    environment = folder.config.environment
    if _image(folder) != _own():
        return "its image is not the one that this server is made from"
    if turn.own is not None:
        return "its tests have a container of their own"
    if turn.user is not None or turn.tests_user is not None:
        return "it says who runs its commands"
    if {turn.allowed, turn.tests_allowed, environment.baseline} != {EVERY_HOST}:
        return "its network is closed"
    if environment.healthcheck is not None:
        return "it waits for its container to be healthy"
    dockerfile = folder.definition.folder / "Dockerfile"
    if dockerfile.is_file() and re.search(r"^\s*ENTRYPOINT\b", dockerfile.read_text(errors="replace"), re.I | re.M):
        return "its image has an ENTRYPOINT, which is to be started for each episode"
    workdir = os.path.normpath(environment.workdir or os.getcwd())
    if workdir in _SYSTEM or any(Path(workdir).is_relative_to(path) for path in (HOME, *_PRIVATE)):
        return f"its working folder is {workdir}, which cannot be put back for each episode"
    return None


def _image(folder: Folder) -> str:
    return images.image_of(folder.definition, settings().repository, "").name


@cache
def _own() -> str | None:
    """The image that this one is made from, by the name that the tasks have for it; None: it was not said."""
    task = (HOME / "task").read_text(encoding="utf-8").strip()
    return _image(read(task_folder(ROOT / "tasks", task))) if task else None


@cache
def _environment() -> dict[str, str]:
    """The variables of the tasks' image: those of this process may hold secrets that are the tests' only."""
    pairs = (HOME / "environment").read_text(encoding="utf-8").split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


class LocalMachine:
    """This container, in which commands run as `user` where nobody else is asked for."""

    def __init__(self, user: int, env: Mapping[str, str]) -> None:
        """Run commands as `user`, with `env` over the image's own variables."""
        self.workdir = os.getcwd()
        self._user = user
        self._env = env

    def _options(self, env: Mapping[str, str] | None, user: str | int | None) -> dict[str, Any]:
        if user not in (None, "root", 0):
            raise MachineError(f"there is no user {user} in this container; start the server with a Docker engine")
        number = self._user if user is None else 0
        home = {"HOME": "/root", "USER": "root"} if number == 0 else {"HOME": AGENT_HOME, "USER": "agent"}
        return {
            "cwd": self.workdir,
            "env": {**_environment(), **home, **self._env, **(env or {})},
            "user": number,
            "group": number,
            "extra_groups": [],
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "start_new_session": True,
        }

    async def run(
        self, command: Sequence[str], env: Mapping[str, str] | None = None, user: str | int | None = None
    ) -> Ran:
        """Do what `Machine.run` says."""
        try:
            process = await asyncio.create_subprocess_exec(*command, **self._options(env, user))
        except OSError as error:
            raise MachineError(f"{command[0]} cannot be run: {error}") from None
        try:
            stdout, stderr = await process.communicate()
        except BaseException:
            _end_session(process.pid)
            raise
        return Ran(int(process.returncode or 0), stdout.decode(errors="replace"), stderr.decode(errors="replace"))

    async def attempt(self, command: str, seconds: float) -> Ran | Stopped:
        """Run a command of the agent's in bash, for at most `seconds`."""
        return await asyncio.to_thread(self._attempt, command, seconds)

    def _attempt(self, command: str, seconds: float) -> Ran | Stopped:
        try:
            process = subprocess.Popen(["bash", "-c", command], **self._options(None, None))
        except OSError as error:
            raise MachineError(f"bash cannot be run: {error}") from None
        outputs = (Output(KEPT_BYTES), Output(KEPT_BYTES))
        readers = [
            threading.Thread(target=_drain, args=pair, daemon=True)
            for pair in zip((process.stdout, process.stderr), outputs, strict=True)
        ]
        for reader in readers:
            reader.start()
        try:
            process.wait(seconds)
            stopped = False
        except subprocess.TimeoutExpired:
            _end_session(process.pid)
            process.wait()
            stopped = True
        for reader in readers:
            reader.join(_GRACE_SECONDS)
        stdout, stderr = map(str, outputs)
        return Stopped(stdout, stderr) if stopped else Ran(process.returncode, stdout, stderr)

    async def put(self, source: Path, target: str, excluded: Excluded = nothing) -> None:
        """Do what `Machine.put` says."""
        await asyncio.to_thread(_copy, source, target, excluded)

    async def take(self, source: str, target: Path, exclude: Sequence[str] = ()) -> None:
        """Nothing is taken out: no task that is played here has tests elsewhere."""
        raise MachineError(f"{source} is not taken out of this container")

    async def allow(self, allowed: Allowed) -> None:
        """Do what `Machine.allow` says, of every host: the network is this container's."""
        if allowed != EVERY_HOST:
            raise MachineError("the network of this container cannot be closed")


def _drain(pipe: IO[bytes], output: Output) -> None:
    while data := os.read(pipe.fileno(), 1 << 16):
        output.add(data)


def _end_session(leader: int) -> None:
    for process in _processes():
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(process) == leader:
                os.kill(process, signal.SIGKILL)


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _copy(source: Path, target: str, excluded: Excluded) -> None:
    with tempfile.TemporaryFile(dir=HOME) as file:
        pack(source, target, excluded, file)
        file.seek(0)
        _unpack(file)


def _unpack(file: IO[bytes]) -> None:
    with tarfile.open(fileobj=file, mode="r:") as archive:
        archive.extractall("/", numeric_owner=True, filter="fully_trusted")


class LocalEpisode:
    """A task that is played in this container."""

    def __init__(self, folder: Folder, env: Mapping[str, str]) -> None:
        self.folder = folder
        self.machine = LocalMachine(AGENT, env)
        self._root = LocalMachine(0, env)
        self._open = True

    async def prepare(self) -> None:
        """Put everything back as it was, and bring the container to where the agent begins."""
        workdir = os.path.normpath(self.folder.config.environment.workdir or os.getcwd())
        await asyncio.to_thread(_put_back, workdir)
        await container.prepare(self._root, self.folder.definition, workdir)
        self.machine.workdir = workdir
        # The agent's processes go on while the tests run, and must not see or write what is theirs.
        await container.run_as_root(self._root, "chmod", "700", "/tests", "/logs/verifier")
        await container.run_as_root(self._root, "chown", "-hR", f"{AGENT}:{AGENT}", workdir)

    async def attempt(self, command: str, seconds: float) -> Ran | Stopped:
        """Do what `Episode.attempt` says."""
        return await self.machine.attempt(command, seconds)

    async def grade(self) -> dict[str, float]:
        """Do what `Episode.grade` says. The tests run as root."""
        return await grade(Box(self._root), self.folder, self.folder.turns[0], _opened)

    def close(self) -> None:
        """End the agent's processes, remove what is the tests', and let another session begin."""
        if self._open:
            self._open = False
            try:
                _end_agent()
                _empty_private()
            finally:
                _one.release()


def _opened(definition: Definition, allowed: Allowed) -> AbstractAsyncContextManager[Box]:
    raise MachineError("the tests have a container of their own, and there is none here")


async def open_episode(folder: Folder) -> LocalEpisode:
    """Begin a task in this container.

    Raises:
        MachineError: another session plays, or the container does not do what it is told.
        LookupError: a variable is missing that task.toml refers to.
        FolderError: the task's working folder does not exist.
    """
    env = resolve("environment.env", folder.config.environment.env)
    if not _one.acquire(blocking=False):
        raise MachineError("another episode is played in this container, which holds one; wait until it has ended")
    episode = LocalEpisode(folder, env)
    try:
        await episode.prepare()
    except BaseException:
        episode.close()
        raise
    return episode


_one = threading.Lock()
"""Held by the episode that is under way."""

_saved: dict[str, IO[bytes]] = {}
"""What an agent may write, as archives of how it was before the first one came."""


def _put_back(workdir: str) -> None:
    _end_agent()
    if not _saved:
        for path in _open_to_agents():
            _saved[path] = _archive(path)
    else:
        for path, archive in _saved.items():
            _clear(path)
            archive.seek(0)
            _unpack(archive)
    if os.path.isdir(workdir) and not any(Path(workdir).is_relative_to(path) for path in _saved):
        _saved[workdir] = _archive(workdir)
    _empty_private()
    os.mkdir("/tests")


def _end_agent() -> None:
    """End every process of the agent's: a signal that one of its user sends to all that it may reaches all of them."""
    subprocess.run(
        ["sh", "-c", "kill -KILL -1"], user=AGENT, group=AGENT, extra_groups=[], stdin=subprocess.DEVNULL, check=False
    )


def _empty_private() -> None:
    for path in _PRIVATE:
        if os.path.lexists(path):
            shutil.rmtree(path)


def _open_to_agents() -> Iterator[str]:
    """The files and folders that any user, or the agent's, may write; not what is in such a folder."""
    for place, folders, files in os.walk("/"):
        for name in [*folders, *files]:
            path = os.path.join(place, name)
            found = os.lstat(path)
            regular = stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)
            if path in ("/proc", "/sys", str(HOME), *_PRIVATE):
                pass
            elif regular and (found.st_mode & stat.S_IWOTH or found.st_uid == AGENT):
                yield path
            else:
                continue
            if name in folders:
                folders.remove(name)


def _archive(path: str) -> IO[bytes]:
    file: IO[bytes] = tempfile.TemporaryFile(dir=HOME)  # noqa: SIM115  (it is kept as long as the process)
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.add(path)
    return file


def _clear(path: str) -> None:
    """Remove what is in a folder, or a file; the folder stays, for it may be where something is mounted."""
    if os.path.isdir(path) and not os.path.islink(path):
        for entry in list(os.scandir(path)):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
    elif os.path.lexists(path):
        os.unlink(path)
