"""What goes over the wire. The client imports this too, so nothing of the server is imported here."""

from typing import Literal

from openenv.core.env_server.types import Action, Observation, State
from pydantic import BaseModel, Field


class ContainerAction(Action):
    """One step: a command in the task's container, or its submission, with which the episode ends."""

    kind: Literal["exec", "submit"] = Field(description="exec: run `command`; submit: have the tests run")
    command: str = Field(default="", description="for bash, in the task's working folder, as the task's user")
    timeout_s: float = Field(default=60.0, gt=0, description="seconds after which the command is stopped")


class McpServer(BaseModel):
    """A tool server of the task. It is reached from inside the container, by commands."""

    name: str
    transport: str
    url: str | None = None
    command: str | None = None
    args: list[str] = Field(default_factory=list)
    headers: dict[str, str] = Field(default_factory=dict, description="as the task states them, ${VAR} included")


class ContainerObservation(Observation):
    """What the agent sees. The reward is None at reset, 0.0 after a command, and the tests' after a submission."""

    task_id: str
    instruction: str = Field(default="", description="what is to be done, in full; at reset only")
    mcp_servers: list[McpServer] = Field(default_factory=list, description="the task's tool servers; at reset only")
    skills: str | None = Field(default=None, description="a folder in the container with skills; at reset only")
    stdout: str = Field(default="", description="of the command; where it is long, its middle is left out and said so")
    stderr: str = ""
    exit_code: int | None = Field(default=None, description="None where the command was stopped, or not run")
    seconds_left: float | None = Field(default=None, description="until commands are refused; None: no limit")
    rewards: dict[str, float] | None = Field(default=None, description="all that the tests reported, by name")


class ContainerState(State):
    """Which task the session plays, besides its `episode_id` and `step_count`."""

    task_id: str | None = None
