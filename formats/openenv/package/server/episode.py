"""One episode: a task in the container in which it is played and graded."""

from typing import Protocol

from .runner.folder import Folder
from .runner.launch import Stopped
from .runner.machine import Machine, Ran

KEPT_BYTES = 64 * 1024
"""How much of each output of a command an observation holds."""


class Episode(Protocol):
    """A task that is under way."""

    folder: Folder

    @property
    def machine(self) -> Machine:
        """The agent's container, in which commands are run as whoever the task's agent is."""

    async def attempt(self, command: str, seconds: float) -> Ran | Stopped:
        """Run a command of the agent's, for at most `seconds`. Raises `MachineError`."""

    async def grade(self) -> dict[str, float]:
        """Run the tests: every number that they report, by name. Nothing is run for the agent after that.

        Raises:
            GradingError: they leave no valid reward.
            MachineError: the container does not do what it is told.
        """

    def close(self) -> None:
        """End everything that the episode has started."""
