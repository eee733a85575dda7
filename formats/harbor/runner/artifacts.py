"""What is taken out of the containers after the agent, and put into that of the tests.

Taking is best effort, as in Harbor (trial/artifact_handler.py): a command that fails, a path that is missing or one
that is in another's place is logged, and the tests judge what is there.
"""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from . import container
from .folder import Turn
from .machine import MAIN, Box, MachineError
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
    machine = box.machine(hook.service)
    if machine is None:
        logger.warning("the command %r is not run: there is no service %s", hook.command, hook.service)
        return
    shell = "bash" if hook.service == MAIN else "sh"
    seconds = int(hook.timeout_sec) or None
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            result = await machine.run([shell, "-c", hook.command], user=hook.user)
    except TimeoutError:
        if not limit.expired():
            raise
        logger.warning("the command %r in %s took longer than %s s", hook.command, hook.service, seconds)
        return
    except MachineError as error:
        logger.warning("the command %r in %s is not run: %s", hook.command, hook.service, error)
        return
    if result.exit_code != 0:
        said = (result.stderr or result.stdout).strip()[-1000:]
        logger.warning("the command %r in %s exited %s: %s", hook.command, hook.service, result.exit_code, said)


async def _take(box: Box, entry: Artifact, folder: Path, taken: list[Taken]) -> Taken | None:
    machine = box.machine(entry.service)
    place = folder / (entry.destination or entry.source).lstrip("/")
    if any(place == t.path or place in t.path.parents or t.path in place.parents for t in taken):
        logger.warning("the artifact %s is left out: another one already stands at %s", entry.source, place)
        return None
    if machine is None:
        logger.warning("the artifact %s is left out: there is no service %s", entry.source, entry.service)
        return None
    try:
        await machine.take(entry.source, place, entry.exclude)
    except MachineError as error:
        logger.info("the artifact %s is left out: %s", entry.source, error)
        return None
    return Taken(entry.source, place)


async def put(box: Box, taken: list[Taken]) -> None:
    """Put the artifacts where they stood, into another container.

    Raises:
        MachineError: one cannot be copied.
    """
    for item in taken:
        if item.path.is_dir():
            await container.empty(box.main, item.source)
        else:
            parent = str(PurePosixPath(item.source).parent)
            await container.run_as_root(box.main, "mkdir", "-p", parent)
            await container.run_as_root(box.main, "chmod", "777", parent)
        await box.main.put(item.path, str(PurePosixPath("/") / item.source))
