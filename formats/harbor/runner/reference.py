"""Play a task's reference solution, as Harbor's oracle agent does (harbor 0.25, agents/oracle.py)."""

import asyncio

from . import ignores
from .container import run_as_root
from .folder import Folder, Turn
from .machine import Machine
from .variables import resolve

_COMMAND = "(/solution/solve.sh) > /logs/agent/oracle.txt 2>&1"


async def play(machine: Machine, folder: Folder, turn: Turn) -> int | None:
    """Run the turn's solve.sh in the container as the agent's user, within the agent's time.

    Returns its exit status, or None if the time was over. Neither is an error: the tests judge what it left behind.

    Raises:
        FileNotFoundError: the turn has no reference solution.
    """
    if turn.solution is None:
        raise FileNotFoundError(f"{folder.name}: there is no solution/solve.sh to play")
    env = {"DEBIAN_FRONTEND": "noninteractive", **resolve("solution.env", folder.config.solution.env)}
    limit = asyncio.timeout(turn.seconds)
    try:
        async with limit:
            await machine.put(turn.solution, "/solution", ignores.excluder(folder.path, turn.solution))
            await run_as_root(machine, "chmod", "+x", "/solution/solve.sh")
            return (await machine.run(["bash", "-c", _COMMAND], env, turn.user)).exit_code
    except TimeoutError:
        if limit.expired():
            return None
        raise
