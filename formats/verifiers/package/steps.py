"""The steps of a task: one container, and in it for each the agent's turn and tests (harbor trial/multi_step.py)."""

import logging
from collections.abc import Awaitable, Callable

import verifiers.v1 as vf
from pydantic import BaseModel, Field

from .runner import container
from .runner.folder import Folder, Turn
from .runner.grading import GradingError
from .runner.machine import Machine

logger = logging.getLogger(__name__)


class StepRecord(BaseModel):
    """What became of one step that was taken."""

    name: str
    rewards: dict[str, float] | None = None
    """What its tests reported; None where they left no reward, or were not run."""
    error: str | None = None


class StepsState(vf.State):
    """What a rollout knows of the steps taken so far."""

    step: str | None = None
    """The one under way."""
    steps: list[StepRecord] = Field(default_factory=list)


class NotReadyError(RuntimeError):
    """A step cannot begin: its setup.sh failed."""


Act = Callable[[Turn], Awaitable[bool]]
"""The agent's turn; false when no other one can follow."""

Grade = Callable[[Turn], Awaitable[dict[str, float]]]


async def play(machine: Machine, folder: Folder, state: StepsState, act: Act, grade: Grade) -> None:
    """Take the steps in order, until one cannot begin, leaves no reward or less than it must; record them in `state`.

    Raises:
        RuntimeError: a container does not do what it is told; that is no step's fault, and no reward.
    """
    shared = False
    for turn in folder.turns:
        state.step = turn.name
        record = StepRecord(name=turn.name)
        state.steps.append(record)
        try:
            await _begin(machine, turn, clear=shared)
        except (NotReadyError, container.HealthcheckError) as error:
            record.error = str(error)
            break
        goes_on = await act(turn)
        shared = turn.own is None
        try:
            record.rewards = await grade(turn)
        except GradingError as error:
            record.error = str(error)
            break
        if not goes_on or below(record.rewards, turn.minimum):
            break
    state.step = None
    for record in state.steps:
        if record.error is not None:
            logger.warning("%s: step %s: %s", folder.name, record.name, record.error)


async def _begin(machine: Machine, turn: Turn, *, clear: bool) -> None:
    """Bring the container into the state in which the step begins; `clear` removes the tests of the one before."""
    await container.empty(machine, "/logs/agent")
    if clear:
        await container.empty(machine, "/logs/verifier")
        await container.empty(machine, "/tests", writable=False)
    if turn.workdir is not None:
        workdir = machine.workdir
        await machine.put(turn.workdir, workdir)
        if (turn.workdir / "setup.sh").exists():
            result = await machine.run(["bash", f"{workdir.rstrip('/')}/setup.sh"], user=turn.user)
            if result.exit_code != 0:
                said = (result.stderr or result.stdout).strip()[-1000:]
                raise NotReadyError(f"setup.sh exited {result.exit_code}: {said}")
    if turn.healthcheck is not None:
        await container.wait_until_healthy(machine, turn.healthcheck, turn.user)


def below(rewards: dict[str, float], minimum: dict[str, float]) -> bool:
    """Whether a reward is less than it must be for the next step; one that is missing is."""
    return any(rewards.get(key, float("-inf")) < least for key, least in minimum.items())


def total(folder: Folder, records: list[StepRecord]) -> dict[str, float]:
    """The rewards of the task: by key the mean over the steps that left any, or those of the last step taken.

    A key that a step lacks counts as 0 in it. A step without rewards, and one that was not taken, do not count.

    Raises:
        GradingError: there are none.
    """
    graded = [record.rewards for record in records if record.rewards is not None]
    if folder.config.multi_step_reward_strategy == "final":
        graded = graded[-1:] if records and records[-1].rewards is not None else []
    keys = {key for rewards in graded for key in rewards}
    if not keys:
        said = "; ".join(f"{record.name}: {record.error or 'no rewards'}" for record in records)
        raise GradingError(f"{folder.name}: no step that counts left a reward ({said})")
    return {key: sum(rewards.get(key, 0.0) for rewards in graded) / len(graded) for key in sorted(keys)}
