"""Runs in OpenEnv's environment: serves a package on loopback, as its README does, and asks it by OpenEnv's protocol.

    drive_openenv.py list PACKAGE             the ids of its tasks, one JSON object a line
    drive_openenv.py score PACKAGE TASK AGENT one JSON object: the reward, or the reason why there is none

`list` asks the server's Task API; of tasks that no server plays it asks the resolver of `openenv harbor`. `score` plays
an episode in a session: the agent `oracle` has the reference solution played before it submits, `nop` only submits.
"""

import json
import sys
from pathlib import Path
from typing import Any

from openenv.core import GenericEnvClient
from openenv.harbor.tasks import resolve_task_dirs
from serving import serving, tasks_listed

mode, package, *rest = sys.argv[1:]
sys.path.insert(0, package)

from server import app as served  # noqa: E402
from server.episode import Episode  # noqa: E402
from server.runner import reference  # noqa: E402
from server.runner.folder import Folder  # noqa: E402
from server.tasks import settings  # noqa: E402

Chosen = served.environment_class()


class Played(Chosen):  # type: ignore[misc, valid-type]
    """The package's environment, with the reference solution played when the agent would begin."""

    async def open_episode(self, folder: Folder) -> Episode:
        """Begin a task, and solve it."""
        episode: Episode = await super().open_episode(folder)
        try:
            await reference.play(episode.machine, folder, folder.turns[0])
        except BaseException:
            episode.close()
            raise
        return episode


def tell(**fields: Any) -> None:
    """Print one line."""
    print(json.dumps(fields), flush=True)


def listed() -> None:
    """Print what the Task API lists, and what only `openenv harbor` would run."""
    with serving(served.make_app(Chosen)) as address:
        found = tasks_listed(address, settings().package, tell)
    for id in found:
        tell(id=id)
    elsewhere = {folder.name for folder in resolve_task_dirs(package)} if Path(package, "tasks").is_dir() else set()
    for id, reason in Chosen.catalogue().refused.items():
        if id in elsewhere:
            tell(id=id)
        else:
            tell(error=f"{id}: {reason}")
    for id in found.keys() - elsewhere:
        tell(error=f"{id}: openenv harbor does not find it")


def scored(task: str, agent: str) -> None:
    """Play one episode and print the reward."""
    if (reason := Chosen.catalogue().refused.get(task)) is not None:
        tell(reward=None, reason=f"not served: {reason}", started=False)
        return
    with serving(served.make_app(Played if agent == "oracle" else Chosen)) as address:
        client = GenericEnvClient(base_url=address, message_timeout_s=24 * 3600).sync()
        try:
            with client:
                client.reset(task_id=task)
                result = client.step({"kind": "submit"})
        except RuntimeError as error:  # what the client makes of the server's error
            tell(reward=None, reason=str(error))
        else:
            tell(reward=result.reward, reason=None)


if mode == "list":
    listed()
else:
    scored(*rest)
