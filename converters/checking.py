"""Which framework tags a folder has earned: it is loaded, and one reference is played, by the real frameworks."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from envconvert.environments import FrameworkUnavailableError, interpreter, require_docker
from envconvert.formats.catalogue import FORMATS, Format
from envconvert.formats.files import UnreadableSourceError
from envconvert.formats.losses import Ledger
from envconvert.formats.probe import Loaded
from envconvert.pipeline import read_stored

_MAXIMUM = 1.0
_TRIES = 5
"""References that are played before a framework is said to score none of them at its maximum."""


class Check(msgspec.Struct, kw_only=True):
    """What one framework makes of a folder.

    `earned` takes at least one task, all of them loaded, and one task whose reference scores 1.0 or more in the
    framework. `unavailable`: it could not be asked here.
    """

    framework: str
    version: str
    status: Literal["earned", "failed", "unavailable"]
    tasks: int
    loaded: int
    errors: list[str]


def check(
    path: str | Path,
    *,
    framework: str | None = None,
    tasks: str | None = None,
    limit: int | None = None,
    say: Callable[[str], None] = print,
) -> list[Check]:
    """Ask each framework whose format `path` holds, or the one named. `tasks` and `limit` select as in `read`.

    Raises `UnreadableSourceError` where `path` holds no known format.
    """
    folder = Path(path).resolve()
    formats = [FORMATS[framework]] if framework else [format for format in FORMATS.values() if format.writes]
    wanted = formats if framework else [format for format in formats if format.reader.detect(folder)]
    if not wanted:
        raise UnreadableSourceError(path, "it holds no format whose framework could load it")
    return [_check(folder, format, tasks, limit, say) for format in wanted]


def _check(folder: Path, format: Format, tasks: str | None, limit: int | None, say: Callable[[str], None]) -> Check:
    probe = format.probe
    taskset = read_stored(folder, format=format.name, tasks=tasks, limit=limit)
    result = Check(
        framework=format.name,
        version=probe.framework.release,
        status="failed",
        tasks=len(taskset.ids),
        loaded=0,
        errors=[],
    )
    try:
        python = interpreter(probe.framework, say)
        say(f"{format.name}: loading {len(taskset.ids)} tasks")
        loaded = probe.load(python, folder)
        _count(result, loaded, taskset.ids)
        if result.errors:
            return result
        require_docker()
    except FrameworkUnavailableError as error:
        result.status, result.errors = "unavailable", [str(error)]
        return result
    playable = [task.id for task in taskset.tasks(Ledger()) if task.reference is not None]
    for task in playable[:_TRIES]:
        say(f"{format.name}: playing the reference of {task}")
        with tempfile.TemporaryDirectory(prefix="envconvert-check-", ignore_cleanup_errors=True) as work:
            score = probe.score(python, folder, task, "oracle", taskset.reward.key, Path(work))
        if score.reward is not None and score.reward >= _MAXIMUM:
            result.status, result.errors = "earned", []
            return result
        because = f": {score.reason}" if score.reason else ""
        result.errors.append(f"{task}: the reference scores {score.reward}, not {_MAXIMUM}{because}")
    result.errors.append(f"none of the first {len(playable[:_TRIES])} references reaches {_MAXIMUM}")
    return result


def _count(result: Check, loaded: Loaded, ids: tuple[str, ...]) -> None:
    """Hold what was loaded against what is there."""
    there = set(loaded.tasks)
    missing = [id for id in ids if id not in there]
    result.loaded = len(ids) - len(missing)
    if missing:
        result.errors = list(loaded.errors) or [f"{id}: it was not loaded" for id in missing]
