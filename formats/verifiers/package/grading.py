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

import verifiers.v1 as vf

from . import artifacts, boxes, ignores, network
from .boxes import Box
from .container import as_user, empty, run_as_root, upload
from .folder import Folder, Turn
from .variables import resolve

_JSON = "/logs/verifier/reward.json"
_TEXT = "/logs/verifier/reward.txt"
_OUTPUT = "/logs/verifier/test-stdout.txt"
_REWARD_BYTES = 1 << 20
_OUTPUT_TAIL = "2000"  # bytes


class GradingError(RuntimeError):
    """The tests left no valid reward."""


async def grade(
    box: Box, folder: Folder, turn: Turn, taskset: str, *, trusted: bool, keep: Path | None
) -> dict[str, float]:
    """What comes between the agent's turn and its rewards: artifacts, tests, and every number they report, by name.

    `keep` is the folder for the artifacts of the turn; None keeps none.

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
            await network.allow(box.main, turn.tests_allowed)
            return await _run_tests(box.main, folder, turn)
        async with boxes.opened(turn.own, turn.tests_allowed, taskset, trusted=trusted) as own:
            await empty(own.main, "/logs/verifier")
            await artifacts.put(own, taken)
            await network.allow(own.main, turn.tests_allowed)
            return await _run_tests(own.main, folder, turn)


async def _run_tests(runtime: vf.Runtime, folder: Folder, turn: Turn) -> dict[str, float]:
    limit = asyncio.timeout(turn.tests_seconds)
    try:
        async with limit:
            return await _verify(runtime, folder, turn)
    except TimeoutError:
        if limit.expired():
            raise GradingError(
                f"{folder.name}: the tests took longer than {turn.tests_seconds:g} s, the verifier.timeout_sec of "
                "task.toml"
            ) from None
        raise


async def _verify(runtime: vf.Runtime, folder: Folder, turn: Turn) -> dict[str, float]:
    await run_as_root(runtime, "rm", "-f", "--", _TEXT, _JSON)
    for tests in turn.tests:
        await upload(runtime, tests, "/tests", ignores.excluder(folder.path, tests))
    root = runtime.with_user("root")
    await root.run(["chmod", "+x", "/tests/test.sh"], {})  # where it is missing, that is said below
    result = await as_user(runtime, turn.tests_user).run(
        ["bash", "-c", f"(/tests/test.sh) > {_OUTPUT} 2>&1"], resolve("verifier.env", turn.tests_env)
    )
    for path, parse in ((_JSON, parse_json), (_TEXT, parse_text)):
        if (await root.run(["test", "-e", path], {})).exit_code == 0:
            content = await root.read(path, max_bytes=_REWARD_BYTES)
            try:
                return parse(content.decode("utf-8"))
            except ValueError as error:
                raise GradingError(f"{folder.name}: {path} {error}") from None
    output = await root.run(["tail", "-c", _OUTPUT_TAIL, _OUTPUT], {})
    said = (result.stderr + output.stdout + output.stderr).strip() or "(nothing)"
    raise GradingError(
        f"{folder.name}: tests/test.sh (exit status {result.exit_code}) wrote neither {_JSON} nor {_TEXT}. "
        f"The end of {_OUTPUT}:\n{said}"
    )


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
    raise GradingError(
        f"no reward {reward_key!r} among {sorted(rewards)}; name the one that trains with "
        "--env.taskset.task.reward-key (vf-validate: --taskset.task.reward-key)"
    )
