"""Runs in OpenEnv's environment: serves a package of replies on loopback, and asks it by OpenEnv's own protocol.

    score_replies.py list PACKAGE             the ids of its tasks, one JSON object a line, by the server's Task API
    score_replies.py score PACKAGE < replies  one JSON object a line: the reward, or null and the reason

Each line of `replies` is a JSON object: the `task`, the `text` of the reply and its `calls`, as names and arguments. It
is played in a session of its own.
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml
from openenv.core import GenericEnvClient
from serving import serving, tasks_listed
from websockets.exceptions import WebSocketException

mode, package = sys.argv[1:]
sys.path.insert(0, package)

from server.app import app  # noqa: E402

results = sys.stdout
sys.stdout = sys.stderr  # servers print


def tell(**fields: Any) -> None:
    """Print one line."""
    print(json.dumps(fields), file=results, flush=True)


def list_tasks(address: str) -> None:
    """Print what the Task API lists."""
    name = yaml.safe_load(Path(package, "openenv.yaml").read_text(encoding="utf-8"))["name"]
    for id in tasks_listed(address, name, tell):
        tell(id=id)


def score(address: str, task: str, text: str, calls: list[dict[str, str]]) -> None:
    """Play one episode and print the reward."""
    client = GenericEnvClient(base_url=address, message_timeout_s=24 * 3600).sync()
    try:
        with client:
            client.reset(task_id=task)
            result = client.step({"text": text, "calls": calls})
    except (RuntimeError, ConnectionError, WebSocketException) as error:  # the first is the server's own error
        tell(reward=None, reason=str(error))
    else:
        tell(reward=result.reward, reason=None)


with serving(app) as base:
    if mode == "list":
        list_tasks(base)
    else:
        for line in sys.stdin:
            score(base, **json.loads(line))
