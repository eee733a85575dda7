"""What is taken out of the containers after the agent, and put into that of the tests.

Taking is best effort, as in Harbor (trial/artifact_handler.py): a command that fails, a path that is missing or one
that is in another's place is logged, and the tests judge what is there.
"""

import asyncio
import logging
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from verifiers.v1.runtimes.container import cli

from . import container
from .boxes import Box
from .compose import MAIN
from .folder import Turn
from .task_toml import Artifact, Collect

logger = logging.getLogger(__name__)

_IMPLICIT = "/logs/artifacts"


@dataclass(frozen=True, slots=True)
class Taken:
    """An artifact on this machine, and where it stood."""

    source: str
    path: Path


async def take(box: Box, turn: Turn, folder: Path | None, *, alone: bool) -> list[Taken]:
    """Run the commands that come after the agent, and copy the artifacts into `folder`; None copies none.

    With `alone` the agent's container is stopped before anything is taken from the services beside it.
    """
    entries = list(_entries(turn))
    taken: list[Taken] = []
    named = {hook.service for hook in turn.collect} | {entry.service for entry in entries}
    sidecars = named - {MAIN, None}
    for services in ({MAIN, None}, sidecars):
        if services == sidecars and sidecars and alone and box.stop_main is not None:
            await box.stop_main()
        for hook in turn.collect:
            if hook.service in services:
                await _run(box, hook)
        if folder is not None:
            for entry in entries:
                if entry.service in services and (found := await _take(box, entry, folder, taken)):
                    taken.append(found)
    return taken


def _entries(turn: Turn) -> Iterator[Artifact]:
    """The artifacts of the turn, the folder that every task may write to first."""
    declared = [item for item in turn.artifacts if item.service in (None, MAIN)]
    if not any(item.source.rstrip("/") == _IMPLICIT for item in declared):
        yield Artifact(source=_IMPLICIT)
    yield from turn.artifacts


async def _run(box: Box, hook: Collect) -> None:
    seconds = int(hook.timeout_sec) or None
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            if hook.service == MAIN:
                result = await container.as_user(box.main, hook.user).run(["bash", "-c", hook.command], {})
            else:
                id = box.container(hook.service)
                user = () if hook.user is None else ("--user", str(hook.user))
                result = await cli("docker", "exec", *user, str(id), "sh", "-c", hook.command)
    except TimeoutError:
        if not limit.expired():
            raise
        logger.warning("the command %r in %s took longer than %s s", hook.command, hook.service, seconds)
        return
    if result.exit_code != 0:
        said = (result.stderr or result.stdout).strip()[-1000:]
        logger.warning("the command %r in %s exited %s: %s", hook.command, hook.service, result.exit_code, said)


async def _take(box: Box, entry: Artifact, folder: Path, taken: list[Taken]) -> Taken | None:
    id = box.container(entry.service)
    place = folder / (entry.destination or entry.source).lstrip("/")
    if any(place == t.path or place in t.path.parents or t.path in place.parents for t in taken):
        logger.warning("the artifact %s is left out: another one already stands at %s", entry.source, place)
        return None
    if id is None:
        logger.warning("the artifact %s is left out: there is no service %s", entry.source, entry.service)
        return None
    is_folder = (await cli("docker", "exec", "--user", "root", id, "test", "-d", entry.source)).exit_code == 0
    try:
        await asyncio.to_thread(_copy_out, id, entry, is_folder, place)
    except container.ContainerError as error:
        logger.info("the artifact %s is left out: %s", entry.source, error)
        return None
    return Taken(entry.source, place)


def _copy_out(id: str, entry: Artifact, is_folder: bool, place: Path) -> None:
    if is_folder and entry.exclude:
        excluded = [f"--exclude={pattern}" for pattern in entry.exclude]
        command = ["docker", "exec", "--user", "root", id, "tar", "-cf", "-", *excluded, "-C", entry.source, "."]
    else:
        command = ["docker", "cp", f"{id}:{entry.source}{'/.' if is_folder else ''}", "-"]
    target = place if is_folder else place.parent
    target.mkdir(parents=True, exist_ok=True)
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as docker:
        assert docker.stdout is not None
        try:
            with tarfile.open(fileobj=docker.stdout, mode="r|") as archive:
                for member in archive:
                    _extract(archive, member, target, None if is_folder else place.name)
        except tarfile.ReadError:
            pass  # nothing came, and docker says below why
        except BaseException:
            docker.kill()
            raise
        _, stderr = docker.communicate()
    if docker.returncode != 0:
        raise container.ContainerError(stderr.decode(errors="replace").strip())


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path, name: str | None) -> None:
    """Unpack one entry, with Python's filter for archives that are not trusted; `name` is another name for it."""
    if name is not None:
        member = member.replace(name=name, deep=False)
    try:
        archive.extract(member, target, filter="data")
    except tarfile.FilterError as error:
        logger.warning("%s is left out of an artifact: %s", member.name, error)


async def put(box: Box, taken: list[Taken]) -> None:
    """Put the artifacts where they stood, into another container.

    Raises:
        ContainerError: one cannot be copied.
    """
    for item in taken:
        if item.path.is_dir():
            await container.empty(box.main, item.source)
        else:
            parent = str(PurePosixPath(item.source).parent)
            await container.run_as_root(box.main, "mkdir", "-p", parent)
            await container.run_as_root(box.main, "chmod", "777", parent)
        await container.upload(box.main, item.path, str(PurePosixPath("/") / item.source))
