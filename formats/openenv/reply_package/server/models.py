"""What goes over the wire. The client imports this too, so nothing of the server is imported here."""

from typing import Any

from openenv.core.env_server.types import Action, Observation, State
from pydantic import BaseModel, ConfigDict, Field


class Call(BaseModel):
    """A call of a tool that the model makes. Nothing executes it."""

    model_config = ConfigDict(extra="forbid")

    name: str
    arguments: str = Field(default="", description="JSON, as the model wrote it")


class ReplyAction(Action):
    """The one step: what the model replies, with which the episode ends."""

    text: str = Field(default="", description="what the model says")
    calls: list[Call] = Field(default_factory=list, description="the tools that it calls, where the task has some")


class ReplyObservation(Observation):
    """What the model is asked, as OpenAI's chat completions take it; then the reward, which is None at reset."""

    task_id: str
    prompt: list[dict[str, Any]] = Field(default_factory=list, description="messages to reply to; at reset only")
    tools: list[dict[str, Any]] = Field(default_factory=list, description="tools that may be called; at reset only")
    seconds: float | None = Field(default=None, description="to reply; at reset only; None: no limit")
    rewards: dict[str, float] | None = Field(default=None, description="of the rule's named parts, and `reward`")


class ReplyState(State):
    """Which task the session plays, besides its `episode_id` and `step_count`."""

    task_id: str | None = None
