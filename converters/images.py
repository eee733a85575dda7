"""Images of tasks that have only a Dockerfile: built once, pushed to a registry, and named in their task.toml.

What only pulls images, such as Verifiers' built-in Harbor taskset and several clouds, then runs these tasks too.
"""

import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import tomli

from envconvert.environments import require_docker
from envconvert.formats import losses
from envconvert.formats.files import Target
from envconvert.formats.harbor.finding import FoundTask
from envconvert.formats.harbor.reader import read_task
from envconvert.formats.harbor.runner.build_context import image_tag
from envconvert.formats.losses import Ledger
from envconvert.formats.probe import tail
from envconvert.formats.taskset import Build, ContainerTask, Taskset

_NAME = "harbor"
_HEADER = re.compile(r"^[ \t]*\[[ \t]*environment[ \t]*\][ \t]*(#.*)?\r?$", re.MULTILINE)


class ImageError(Exception):
    """An image could not be built or pushed, or cannot be named; the message says why."""


def is_repository(name: str) -> bool:
    """Whether `name` is REGISTRY/PREFIX, a repository of images."""
    return re.fullmatch(r"[a-z0-9.-]+(:\d+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+", name) is not None


def with_images(taskset: Taskset, repository: str, say: Callable[[str], None]) -> Taskset:
    """`taskset` with an image in `repository`, by its digest, for each task that has only a Dockerfile.

    Contexts that are equal are built once. The images are made as the tasks are read; what could not be is a loss of
    its task, which stays as it is. Raises `FrameworkUnavailableError` where there is no Docker.
    """
    require_docker()
    pushed: dict[str, str] = {}  # by tag: the image by its digest

    def tasks(ledger: Ledger) -> Iterator[ContainerTask]:
        for task in taskset.container_tasks(ledger):
            build = task.container.build
            if build is None or build.dockerfile is None or build.compose is not None or task.container.image:
                yield task
                continue
            tag = f"{repository}:{image_tag(taskset.name, build.context.root, None).rpartition(':')[2]}"
            with tempfile.TemporaryDirectory(prefix="envconvert-") as work:
                try:
                    if tag not in pushed:
                        say(f"{task.id}: building {tag}")
                        pushed[tag] = _push(tag, build, task.limits.build, taskset.name)
                    task, kind, value = _named(task, pushed[tag], Path(work)), losses.IMAGE_PUSHED, pushed[tag]
                except ImageError as error:
                    kind, value = losses.IMAGE_UNBUILT, str(error)
                loss = kind.loss(task=task.id, format=_NAME, field="environment.docker_image", value=value)
                if ledger.admit(task.id, [loss]):
                    yield task

    return taskset.of(tasks)


def _push(tag: str, build: Build, seconds: float | None, taskset: str) -> str:
    """Build and push an image; its name by digest."""
    repository = tag.rpartition(":")[0]
    label = f"envconvert.taskset={taskset}"
    _docker("build", "--quiet", "--tag", tag, "--label", label, str(build.context.root), seconds=seconds)
    _docker("push", "--quiet", tag)
    names: list[str] = json.loads(_docker("image", "inspect", "--format", "{{json .RepoDigests}}", tag))
    return next(name for name in names if name.startswith(f"{repository}@"))


def _docker(*arguments: str, seconds: float | None = None) -> str:
    try:
        done = subprocess.run(
            ["docker", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        raise ImageError(f"docker {arguments[0]} was ended after {seconds:g} s, the task's limit") from None
    if done.returncode:
        raise ImageError(f"docker {arguments[0]}: {tail(done.stderr or done.stdout)}")
    return done.stdout


def _named(task: ContainerTask, image: str, work: Path) -> ContainerTask:
    """`task` with `image`; a copy of its folder, in `work`, where it came from one, and nothing else in it changed."""
    native = task.native.get(_NAME)
    if native is None:
        return msgspec.structs.replace(task, container=msgspec.structs.replace(task.container, image=image))
    found = FoundTask(task.id, str(work), native.place)
    Target(found.path).copy(native.files)
    file = Path(found.path, "task.toml")
    text = _with_image(file.read_bytes().decode(), image)
    file.write_bytes(text.encode())
    return read_task(found, task.reward, [])


def _with_image(text: str, image: str) -> str:
    """A task.toml with `image` in [environment], and not another character changed."""
    line = f'docker_image = "{image}"'
    header = _HEADER.search(text)
    if header is not None:
        new = f"{text[: header.end()]}\n{line}{text[header.end() :]}"
    else:
        new = f"{text}\n[environment]\n{line}\n"
    wanted = tomli.loads(text)
    wanted.setdefault("environment", {})["docker_image"] = image
    try:
        found = tomli.loads(new)
    except tomli.TOMLDecodeError:
        found = {}
    if found != wanted:
        raise ImageError("task.toml has no line [environment] after which docker_image can be written; add one")
    return new
