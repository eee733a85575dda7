"""Run the tests and read the reward they leave, as Harbor's Verifier.verify does (harbor 0.25, verifier/verifier.py).

A reward that is missing or malformed is an error, never a reward of 0.
"""

import asyncio
import json
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import artifacts, ignores
from .container import empty, run_as_root
from .folder import Folder, Turn
from .machine import Box, Machine, Opener
from .variables import resolve

_JSON = "/logs/verifier/reward.json"
_TEXT = "/logs/verifier/reward.txt"
_OUTPUT = "/logs/verifier/test-stdout.txt"
_REWARD_BYTES = 1 << 20
_OUTPUT_TAIL = "2000"  # bytes


class GradingError(RuntimeError):
    """The tests left no valid reward."""


async def grade(box: Box, folder: Folder, turn: Turn, opened: Opener, keep: Path | None = None) -> dict[str, float]:
    """What comes between the agent's turn and its rewards: artifacts, tests, and every number they report, by name.

    `opened` opens the tests' own container, where they have one; `keep` is the folder for the artifacts of the turn.

    Raises:
        GradingError: no valid reward within the limit of the tests.
        RuntimeError: a container cannot be started, or does not do what it is told.
    """
    with tempfile.TemporaryDirectory(prefix="envconvert-") as scratch:
        wanted = keep or (Path(scratch) if turn.own else None)
        last = turn is folder.turns[-1]
        taken = await artifacts.take(box, turn, wanted, alone=last and turn.own is not None)
        if turn.own is None:
            if folder.has_steps:  # nothing of the step before may be taken for this one's
                await empty(box.main, "/logs/verifier")
                await empty(box.main, "/tests", writable=False)
            # The agent's limits end here: the tests have their own, or none.
            await box.main.allow(turn.tests_allowed)
            return await _run_tests(box.main, folder, turn)
        async with opened(turn.own, turn.tests_allowed) as own:
            await empty(own.main, "/logs/verifier")
            await artifacts.put(own, taken)
            await own.main.allow(turn.tests_allowed)
            return await _run_tests(own.main, folder, turn)


async def _run_tests(machine: Machine, folder: Folder, turn: Turn) -> dict[str, float]:
    limit = asyncio.timeout(turn.tests_seconds)
    try:
        async with limit:
            return await _verify(machine, folder, turn)
    except TimeoutError:
        if limit.expired():
            raise GradingError(
                f"{folder.name}: the tests took longer than {turn.tests_seconds:g} s, the verifier.timeout_sec of "
                "task.toml"
            ) from None
        raise


async def _verify(machine: Machine, folder: Folder, turn: Turn) -> dict[str, float]:
    await run_as_root(machine, "rm", "-f", "--", _TEXT, _JSON)
    for tests in turn.tests:
        await machine.put(tests, "/tests", ignores.excluder(folder.path, tests))
    await machine.run(["chmod", "+x", "/tests/test.sh"], user="root")  # where it is missing, that is said below
    command = ["bash", "-c", f"(/tests/test.sh) > {_OUTPUT} 2>&1"]
    result = await machine.run(command, resolve("verifier.env", turn.tests_env), turn.tests_user)
    for path, parse in ((_JSON, parse_json), (_TEXT, parse_text)):
        if (text := await _read(machine, path)) is not None:
            try:
                return parse(text)
            except ValueError as error:
                raise GradingError(f"{folder.name}: {path} {error}") from None
    output = await machine.run(["tail", "-c", _OUTPUT_TAIL, _OUTPUT], user="root")
    said = (result.stderr + output.stdout + output.stderr).strip() or "(nothing)"
    raise GradingError(
        f"{folder.name}: tests/test.sh (exit status {result.exit_code}) wrote neither {_JSON} nor {_TEXT}. "
        f"The end of {_OUTPUT}:\n{said}"
    )


async def _read(machine: Machine, path: str) -> str | None:
    """What the tests wrote to `path`; None where there is nothing."""
    if (await machine.run(["test", "-e", path], user="root")).exit_code != 0:
        return None
    text = await run_as_root(machine, "head", "-c", str(_REWARD_BYTES + 1), path)
    if len(text) > _REWARD_BYTES:
        raise GradingError(f"{path} holds more than {_REWARD_BYTES} bytes; it must hold the rewards only")
    if "\ufffd" in text:
        raise GradingError(f"{path} is not UTF-8: {_quoted(text)}")
    return text


def parse_json(text: str) -> dict[str, float]:
    """The rewards of a reward.json: an object of finite numbers. `true` is 1 and `false` is 0, as in Harbor.

    Raises:
        ValueError: it is anything else; the message continues a sentence that begins with the file's name.
    """
    try:
        rewards: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON ({error}): {_quoted(text)}") from None
    if not isinstance(rewards, dict):
        raise ValueError(f"must be an object of numbers, not {_quoted(text)}")
    for key, value in rewards.items():
        if not isinstance(value, int | float):
            raise ValueError(f"must have numbers only, but {key!r} is {_quoted(json.dumps(value))}")
    return {key: _finite(value) for key, value in rewards.items()}


def parse_text(text: str) -> dict[str, float]:
    """The reward of a reward.txt: one finite number, as Python's float() reads it.

    Raises:
        ValueError: it is anything else; the message continues a sentence that begins with the file's name.
    """
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"must hold one number, not {_quoted(text)}") from None
    return {"reward": _finite(number)}


def _finite(number: float) -> float:
    try:
        value = float(number)
    except OverflowError:  # an int too large for a float
        value = math.inf
    if not math.isfinite(value):
        raise ValueError(f"must hold finite numbers, not {value}")
    return value


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 200 else f"{text[:200]}...")


def designated(rewards: Mapping[str, float], reward_key: str) -> str:
    """The name of the one reward that trains: `reward_key` if it was reported, else the only one.

    Raises:
        GradingError: there is no telling.
    """
    if reward_key in rewards:
        return reward_key
    if len(rewards) == 1:
        return next(iter(rewards))
    raise GradingError(f"no reward {reward_key!r} among {sorted(rewards)}; name the one that trains as the README says")
