"""Run the tests and read the reward they leave, as Harbor's Verifier.verify does (harbor 0.25, verifier/verifier.py).

A reward that is missing or malformed is an error, never a reward of 0.
"""

import asyncio
import json
import math
from collections.abc import Mapping
from typing import Any

import verifiers.v1 as vf

from .container import as_user, run_as_root, upload
from .folder import Folder
from .variables import resolve

_JSON = "/logs/verifier/reward.json"
_TEXT = "/logs/verifier/reward.txt"
_OUTPUT = "/logs/verifier/test-stdout.txt"
_REWARD_BYTES = 1 << 20
_OUTPUT_TAIL = "2000"  # bytes


class GradingError(RuntimeError):
    """The tests left no valid reward."""


async def grade(runtime: vf.Runtime, folder: Folder) -> dict[str, float]:
    """Run the tests of `folder` in the container and return every number they report, by name.

    Raises:
        GradingError: no valid reward within [verifier].timeout_sec.
    """
    seconds = folder.config.verifier.timeout_sec
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await _grade(runtime, folder)
    except TimeoutError:
        if limit.expired():
            raise GradingError(
                f"{folder.name}: the tests took longer than {seconds:g} s, the verifier.timeout_sec of task.toml"
            ) from None
        raise


async def _grade(runtime: vf.Runtime, folder: Folder) -> dict[str, float]:
    verifier = folder.config.verifier
    # A person may have cut the agent's network (--env.agent.runtime.allow); the tests have the task's, which is public.
    await runtime.prepare_execution(None)
    await run_as_root(runtime, "rm", "-f", "--", _TEXT, _JSON)
    await upload(runtime, folder.path / "tests", "/tests")
    await run_as_root(runtime, "chmod", "+x", "/tests/test.sh")
    result = await as_user(runtime, verifier.user).run(
        ["bash", "-c", f"(/tests/test.sh) > {_OUTPUT} 2>&1"], resolve("verifier.env", verifier.env)
    )
    root = runtime.with_user("root")
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
