"""The reward: OpenEnv's rubric over the grader, which needs neither OpenEnv nor a server (grade.py)."""

from collections.abc import Mapping
from typing import Any

from openenv.core.rubrics import Rubric

from .grade import grade
from .models import ReplyAction, ReplyObservation


class RuleRubric(Rubric):
    """Scores a reply by the rule that it was given. It may take seconds, and may be called in any thread."""

    def __init__(self) -> None:
        super().__init__()
        self.rule: Mapping[str, Any] | None = None
        self.rewards: dict[str, float] = {}
        """Of the rule's named parts, and `reward`, as they were last."""

    def forward(self, action: ReplyAction, observation: ReplyObservation) -> float:
        """The reward, unclamped.

        Raises:
            GraderError: the rule cannot be evaluated, which is no reward of 0.
        """
        assert self.rule is not None
        calls = [{"function": {"name": call.name, "arguments": call.arguments}} for call in action.calls]
        graded = grade(self.rule, [{"role": "assistant", "content": action.text, "tool_calls": calls}])
        self.rewards = {**graded.parts, "reward": graded.reward}
        return graded.reward
