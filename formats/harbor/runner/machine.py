"""A running container, as the code that plays a task sees it. Every framework brings its own."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from .folder import Definition
from .task_toml import Allowed

MAIN = "main"
"""The service of a compose file whose container is the agent's."""


class MachineError(RuntimeError):
    """A container does not do what it is told: no fault of the agent's, and no reward."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a command. What it printed is text, with U+FFFD for bytes that are not UTF-8."""

    exit_code: int
    stdout: str
    stderr: str


Excluded = Callable[[Path], bool]
"""Whether a path on this machine is left out of a copy, with all that it holds."""


def nothing(path: Path) -> bool:
    """Leave nothing out."""
    return False


class Machine(Protocol):
    """A container that runs. A cancelled call ends what it waits for, not always what runs inside."""

    workdir: str
    """The folder in which commands start."""

    async def run(
        self, command: Sequence[str], env: Mapping[str, str] | None = None, user: str | int | None = None
    ) -> Ran:
        """Run a command to its end, in `workdir`, as `user` (None: the image's).

        `env` goes over the container's own environment. Raises `MachineError` where it cannot be run at all.
        """

    async def put(self, source: Path, target: str, excluded: Excluded = nothing) -> None:
        """Copy the file `source` to `target`, or what is in the folder `source` into it; root owns the copies.

        Modes, links and empty folders are kept. Raises `MachineError`.
        """

    async def take(self, source: str, target: Path, exclude: Sequence[str] = ()) -> None:
        """Copy the file `source` to `target`, or what is in the folder `source` into it, but for tar's `exclude`.

        What would lie outside of `target` is left out. Raises `MachineError` where it is not there.
        """

    async def allow(self, allowed: Allowed) -> None:
        """Let it reach these hosts and no others from now on. Raises `MachineError` where that cannot be."""


@dataclass(frozen=True, slots=True)
class Box:
    """The agent's container, and those of the services around it by name, where a compose file has some."""

    main: Machine
    services: Mapping[str, Machine] = field(default_factory=dict)
    stop_main: Callable[[], Awaitable[None]] | None = None
    """Ends whatever still runs in `main`; None where there are no other services."""

    def machine(self, service: str | None) -> Machine | None:
        """The container of `service` (None is the agent's); None where there is no such service."""
        return self.main if service in (None, MAIN) else self.services.get(str(service))


Opener = Callable[[Definition, Allowed], AbstractAsyncContextManager[Box]]
"""Opens a new container, prepared, that may reach the given hosts while it is set up; it ends with the block."""
