"""The environment: a task is chosen by `reset`, and its one step is a reply, which is scored."""

from typing import Any
from uuid import uuid4

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import EnvironmentMetadata

from . import chat
from .models import ReplyAction, ReplyObservation, ReplyState
from .rubric import RuleRubric
from .tasks import catalogue


class ReplyEnvironment(Environment[ReplyAction, ReplyObservation, ReplyState]):
    """One session. OpenEnv calls `reset` and `step` in a thread of the session's own, so that no other waits for it."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    rubric: RuleRubric

    def __init__(self) -> None:
        super().__init__(rubric=RuleRubric())
        self._state = ReplyState()

    # The Task API.

    def list_splits(self) -> list[dict[str, str]]:
        """The splits, in order."""
        return [{"name": name, "type": _kind(name)} for name in catalogue().splits]

    def num_tasks(self, split: str) -> int:
        """How many tasks a split has."""
        return len(catalogue().split(split))

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """All tasks of a split."""
        return self.get_task_range(split)

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """One task. Raises IndexError where the split has no such index; they begin with 0."""
        return catalogue().at(split, index)

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        """The tasks from `start` up to `stop`. Raises IndexError where one of them is negative or past the end."""
        count = len(catalogue().split(split))
        first, last = start or 0, count if stop is None else stop
        if not 0 <= first <= count or not 0 <= last <= count:
            raise IndexError(f"{first} to {last} is no range of the split {split!r}, which has {count} tasks")
        return [catalogue().at(split, index) for index in range(first, last)]

    # An episode.

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task_id: str | None = None,
        split: str | None = None,
        index: int | None = None,
        **kwargs: Any,
    ) -> ReplyObservation:
        """Begin the task `task_id`, else the one at `index` of `split`, else the one that `seed` falls on.

        Raises:
            ValueError: an argument is unknown, of the wrong type, or names no task.
            IndexError: the split has no such index.
        """
        self.close()
        if kwargs:
            known = "seed, episode_id, task_id, split, index"
            raise ValueError(f"reset knows no {', '.join(sorted(kwargs))}; it takes {known}")
        _check_types(str, task_id=task_id, split=split, episode_id=episode_id)
        _check_types(int, seed=seed, index=index)
        if seed is not None and seed < 0:
            raise ValueError(f"the seed is {seed}; it must be 0 or more")
        task = catalogue().task(catalogue().chosen(task_id, split, index, seed))
        self.rubric.rule = task["rule"]
        self._state = ReplyState(episode_id=episode_id or str(uuid4()), step_count=0, task_id=task["id"])
        return ReplyObservation(
            task_id=task["id"],
            prompt=chat.messages(task["prompt"]),
            tools=chat.tools(task.get("tools", ())),
            seconds=task.get("limits", {}).get("agent"),
        )

    def step(self, action: ReplyAction, timeout_s: float | None = None, **kwargs: Any) -> ReplyObservation:
        """Score the reply.

        Raises:
            RuntimeError: no task has been begun, or it has ended.
            GraderError: the rule cannot be evaluated. The episode is over all the same.
        """
        if self.rubric.rule is None:
            over = self._state.task_id is not None
            raise RuntimeError(
                f"the episode of {self._state.task_id} is over; call reset" if over else "call reset first"
            )
        self._state.step_count += 1
        observation = ReplyObservation(task_id=self._state.task_id, done=True)
        try:
            observation.reward = self._apply_rubric(action, observation)
        finally:
            self.close()
        observation.rewards = self.rubric.rewards
        return observation

    @property
    def state(self) -> ReplyState:
        """Which task is played, and whether it was replied to."""
        return self._state

    def close(self) -> None:
        """End the episode that is under way."""
        self.rubric.rule = None

    def get_metadata(self) -> EnvironmentMetadata:
        """What the environment is called."""
        name, count = catalogue().name, len(catalogue().ids)
        return EnvironmentMetadata(name=name, description=f"{count} tasks of {name}, each replied to once")


def _check_types(kind: type, **values: Any) -> None:
    for name, value in values.items():
        if value is not None and type(value) is not kind:
            raise ValueError(f"{name} is {value!r}; it must be of type {kind.__name__}")


def _kind(split: str) -> str:
    return split if split in ("train", "validation", "test") else "validation"
