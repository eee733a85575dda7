"""The Docker image of a task: how it comes to be on this machine, and what it says about itself.

Only the docker command is used. Every image is provided once in a process, however many rollouts ask for it: the first
one does the work in a thread of its own, the others wait for the same future.
"""

import asyncio
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .build_context import image_tag
from .docker import docker_now
from .folder import Definition

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


def image_of(definition: Definition, repository: str, taskset: str) -> Image:
    """The image of a container that no compose file describes; `repository` is what images built here are called."""
    built = definition.has_dockerfile
    tag = image_tag(repository, definition.folder, definition.docker_image) if built else str(definition.docker_image)
    return Image(
        name=tag,
        docker_image=definition.docker_image,
        context=definition.folder if built else None,
        taskset=taskset,
        timeout=definition.environment.build_timeout_sec,
    )


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """What an image says about its containers. Its USER needs no care: `docker exec` already runs as that user."""

    workdir: str
    entrypoint: tuple[str, ...]


_lock = threading.Lock()
_provided: dict[str, Future[None]] = {}


def once(name: str, work: Callable[[], None]) -> Future[None]:
    """Do `work`, which provides the image `name`, unless it is under way or done. After a failure it is tried again.

    The thread is a daemon of its own: frameworks remove containers in asyncio's few default threads (verifiers
    runtimes/base.py, teardown), which builds of ten minutes would keep busy.
    """
    with _lock:
        future = _provided.get(name)
        if future is None:
            future = _provided[name] = Future()
            threading.Thread(target=_settle, args=(name, work, future), name=name, daemon=True).start()
        return future


def _settle(name: str, work: Callable[[], None], future: Future[None]) -> None:
    try:
        work()
    except Exception as error:  # whatever it is, the rollouts that wait must hear of it
        with _lock:
            del _provided[name]
        future.set_exception(error)
    else:
        future.set_result(None)


def providing(image: Image) -> Future[None]:
    """Have the image brought to this machine, once in this process."""
    return once(image.name, partial(provide, image))


async def provided(image: Image) -> None:
    """Wait until the image is on this machine; the event loop goes on meanwhile. Raises as `provide`."""
    # Shielded: a cancelled rollout must not cancel the build that others wait for.
    await asyncio.shield(asyncio.wrap_future(providing(image)))


def provide(image: Image) -> None:
    """Bring the image to this machine.

    Raises:
        ImageError: it is not here and cannot be pulled or built.
    """
    source = image.docker_image
    if source is not None and exists(source):
        tag(source, image.name)
    elif not exists(image.name) and not _pulled(image):
        _build(image)


def _pulled(image: Image) -> bool:
    """Whether there is a docker_image and it could be pulled. False leaves it to the Dockerfile."""
    source = image.docker_image
    if source is None:
        return False
    failure = pull(source, image.timeout)
    if failure is None:
        tag(source, image.name)
        return True
    if image.context is not None:
        return False
    raise ImageError(
        f"the image {source} is not on this machine and cannot be pulled ({failure}), and the task has no "
        f"environment/Dockerfile to build it from. Publish it where it exists: "
        f"docker build -t {source} CONTEXT && docker push {source}"
    )


def pull(name: str, seconds: float) -> str | None:
    """Pull an image. None if it is here now, else what went wrong."""
    return run_within(seconds, "docker", "pull", "--quiet", name)


def _build(image: Image) -> None:
    assert image.context is not None  # else `_pulled` has raised
    # Absolute, because docker takes some relative paths, such as github.com/..., for addresses.
    context = os.path.abspath(image.context)
    label = f"envconvert.taskset={image.taskset}"
    failure = run_within(image.timeout, "docker", "build", "--tag", image.name, "--label", label, context)
    if failure is not None:
        raise ImageError(f"docker build of {context} failed: {failure}")


def run_within(seconds: float, *command: str, env: Mapping[str, str] | None = None) -> str | None:
    """Run a docker command for at most `seconds`. None if it succeeded, else what went wrong."""
    with tempfile.TemporaryFile() as log:
        # A session of its own, because docker hands a build to a plugin process that must be stopped with it.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env=env
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


def exists(image: str) -> bool:
    """Whether the image is on this machine."""
    result = _docker("image", "inspect", image)
    if result.returncode != 0 and "no such image" not in result.stderr.lower():
        raise ImageError(f"docker cannot be asked for the image {image}: {result.stderr.strip()}")
    return result.returncode == 0


def tag(source: str, name: str) -> None:
    """Call the image `source` also `name`."""
    if source != name and (result := _docker("tag", source, name)).returncode != 0:
        raise ImageError(f"the image {source} cannot be tagged {name}: {result.stderr.strip()}")


def _docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return docker_now(*arguments)
    except FileNotFoundError:
        raise ImageError("there is no docker command on this machine; install Docker") from None


def inspect(name: str) -> ImageConfig:
    """What the image `name`, which is on this machine, says about its containers."""
    result = _docker("image", "inspect", "--format", "{{json .Config}}", name)
    if result.returncode != 0:
        raise ImageError(f"the image {name} cannot be inspected: {result.stderr.strip()}")
    config = json.loads(result.stdout)
    return ImageConfig(workdir=config.get("WorkingDir") or "/", entrypoint=tuple(config.get("Entrypoint") or ()))
