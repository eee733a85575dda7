"""The Docker image of a task: what it is called, how it comes to be on this machine, what it says about itself.

Only the docker command is used. Every image is provided once in a process, however many rollouts ask for it: the first
one does the work in a thread of its own, the others wait for the same future.
"""

import asyncio
import hashlib
import json
import os
import re
import signal
import stat
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_LOG_TAIL = 4000  # bytes of a failed command's output that an error quotes


class ImageError(RuntimeError):
    """The image of a task cannot be had, or does not have what the task asks of it."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image and where it comes from: `docker_image`, or the Dockerfile in `context`; at least one is given.

    `timeout` is in seconds, for one pull or build. `taskset` becomes a label of what is built.
    """

    name: str
    docker_image: str | None
    context: Path | None
    taskset: str
    timeout: float


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """What an image says about its containers. Its USER needs no care: `docker exec` already runs as that user."""

    workdir: str
    entrypoint: tuple[str, ...]


def local_tag(module: str, context: Path, docker_image: str | None) -> str:
    """The tag on this machine for the image of the build context: another one as soon as anything in it changes."""
    digest = hashlib.sha256((docker_image or "").encode())
    for entry in _entries(context, ""):
        digest.update(entry)
    # An image name allows less than a module's: lower case, no underscore at the ends, not more than two in a row.
    repository = re.sub(r"[^a-z0-9]+", "_", module.lower()).strip("_") or "tasks"
    return f"localhost/envconvert/{repository}:{digest.hexdigest()[:32]}"


def _entries(folder: Path, prefix: str) -> Iterator[bytes]:
    """A digest for each entry below `folder`: its path, its kind, and its contents or its target."""
    for entry in sorted(os.scandir(folder), key=lambda entry: os.fsencode(entry.name)):
        name = f"{prefix}{entry.name}"
        if entry.is_symlink():
            kind, content = "link", hashlib.sha256(os.fsencode(os.readlink(entry.path))).digest()
        elif entry.is_dir():
            kind, content = "folder", b""
        else:
            # Only this bit of the mode survives git and wheels, so only it may decide.
            kind = "program" if entry.stat().st_mode & stat.S_IXUSR else "file"
            with open(entry.path, "rb") as file:
                content = hashlib.file_digest(file, "sha256").digest()
        yield hashlib.sha256(b"\0".join((os.fsencode(name), kind.encode(), content))).digest()
        if kind == "folder":
            yield from _entries(Path(entry.path), f"{name}/")


_lock = threading.Lock()
_provided: dict[str, Future[None]] = {}


def ensure(image: Image) -> None:
    """Block until the image is on this machine.

    Raises:
        ImageError: it is not here and cannot be pulled or built.
    """
    _provision(image).result()


async def ensured(image: Image) -> None:
    """Wait until the image is on this machine; the event loop goes on meanwhile. Raises as `ensure` does."""
    # Shielded: a cancelled rollout must not cancel the build that others wait for.
    await asyncio.shield(asyncio.wrap_future(_provision(image)))


def _provision(image: Image) -> "Future[None]":
    """The one attempt to provide `image` that is under way or has succeeded. After a failure the next call tries again.

    The thread is a daemon of its own: verifiers removes containers in asyncio's few default threads
    (runtimes/base.py, teardown), which builds of ten minutes would keep busy.
    """
    with _lock:
        future = _provided.get(image.name)
        if future is None:
            future = _provided[image.name] = Future()
            threading.Thread(target=_settle, args=(image, future), name=image.name, daemon=True).start()
        return future


def _settle(image: Image, future: "Future[None]") -> None:
    try:
        _provide(image)
    except Exception as error:  # it is raised in every rollout that waits
        with _lock:
            del _provided[image.name]
        future.set_exception(error)
    else:
        future.set_result(None)


def _provide(image: Image) -> None:
    source = image.docker_image
    if source is not None and _exists(source):
        _tag(source, image.name)
    elif not _exists(image.name) and not _pulled(image):
        _build(image)


def _pulled(image: Image) -> bool:
    """Whether there is a docker_image and it could be pulled. False leaves it to the Dockerfile."""
    source = image.docker_image
    if source is None:
        return False
    failure = _run_within(image.timeout, "docker", "pull", "--quiet", source)
    if failure is None:
        _tag(source, image.name)
        return True
    if image.context is not None:
        return False
    raise ImageError(
        f"the image {source} is not on this machine and cannot be pulled ({failure}), and the task has no "
        f"environment/Dockerfile to build it from. Publish it where it exists: "
        f"docker build -t {source} CONTEXT && docker push {source}"
    )


def _build(image: Image) -> None:
    label = f"envconvert.taskset={image.taskset}"
    command = ("docker", "build", "--tag", image.name, "--label", label, str(image.context))
    failure = _run_within(image.timeout, *command)
    if failure is not None:
        raise ImageError(f"docker build of {image.context} failed: {failure}")


def _run_within(seconds: float, *command: str) -> str | None:
    """Run a docker command for at most `seconds`. None if it succeeded, else what went wrong."""
    with tempfile.TemporaryFile() as log:
        # A session of its own, because docker hands a build to a plugin process that must be stopped with it.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            reason = f"stopped after {seconds:g} s, the build_timeout_sec of task.toml"
        else:
            if status == 0:
                return None
            reason = f"exit status {status}"
        log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_TAIL))
        return f"{reason}; its last output was:\n{log.read().decode(errors='replace').strip()}"


def _exists(image: str) -> bool:
    result = _docker("image", "inspect", image)
    if result.returncode != 0 and "no such image" not in result.stderr.lower():
        raise ImageError(f"docker cannot be asked for the image {image}: {result.stderr.strip()}")
    return result.returncode == 0


def _tag(source: str, name: str) -> None:
    if source != name and (result := _docker("tag", source, name)).returncode != 0:
        raise ImageError(f"the image {source} cannot be tagged {name}: {result.stderr.strip()}")


def _docker(*arguments: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(("docker", *arguments), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except FileNotFoundError:
        raise ImageError("there is no docker command on this machine; install Docker") from None


def inspect(name: str) -> ImageConfig:
    """What the image `name`, which is on this machine, says about its containers."""
    result = _docker("image", "inspect", "--format", "{{json .Config}}", name)
    if result.returncode != 0:
        raise ImageError(f"the image {name} cannot be inspected: {result.stderr.strip()}")
    config = json.loads(result.stdout)
    return ImageConfig(workdir=config.get("WorkingDir") or "/", entrypoint=tuple(config.get("Entrypoint") or ()))


@cache
def user_name(name: str, uid: int) -> str:
    """The name of the user `uid` in the image `name`, which is on this machine.

    Raises:
        ImageError: the image has no such user.
    """
    result = _docker("run", "--rm", "--network", "none", "--entrypoint", "cat", name, "/etc/passwd")
    if result.returncode != 0:
        raise ImageError(f"/etc/passwd of the image {name} cannot be read: {result.stderr.strip()}")
    for line in result.stdout.splitlines():
        user, _, number, *_ = f"{line}:::".split(":")
        if number == str(uid):
            return user
    raise ImageError(
        f"[agent].user = {uid} of task.toml is no user of the image {name}; verifiers runs an agent only as a user of "
        f"/etc/passwd with a home folder: add one to the Dockerfile (useradd --create-home --uid {uid} NAME)"
    )
