"""Play a task's reference solution, as Harbor's oracle agent does (harbor 0.25, agents/oracle.py)."""

import asyncio

import verifiers.v1 as vf

from .container import as_user, run_as_root, upload
from .folder import Folder
from .variables import resolve

_COMMAND = "(/solution/solve.sh) > /logs/agent/oracle.txt 2>&1"


async def play(runtime: vf.Runtime, folder: Folder) -> int | None:
    """Run solution/solve.sh in the container as the agent's user, within [agent].timeout_sec.

    Returns its exit status, or None if the time was over. Neither is an error: the tests judge what it left behind.

    Raises:
        FileNotFoundError: the task has no reference solution.
    """
    if not folder.has_solution:
        raise FileNotFoundError(f"{folder.name}: there is no solution/solve.sh to play")
    config = folder.config
    env = {"DEBIAN_FRONTEND": "noninteractive", **resolve("solution.env", config.solution.env)}
    limit = asyncio.timeout(config.agent.timeout_sec)
    try:
        async with limit:
            await upload(runtime, folder.path / "solution", "/solution")
            await run_as_root(runtime, "chmod", "+x", "/solution/solve.sh")
            result = await as_user(runtime, config.agent.user).run(["bash", "-c", _COMMAND], env)
            return int(result.exit_code)
    except TimeoutError:
        if limit.expired():
            return None
        raise
