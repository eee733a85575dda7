"""Runs in OpenEnv's environment: serves a package of replies on loopback, and asks it by OpenEnv's own protocol.

    score_replies.py list PACKAGE             the ids of its tasks, one JSON object a line, by the server's Task API
    score_replies.py score PACKAGE < replies  one JSON object a line: the reward, or null and the reason

Each line of `replies` is a JSON object: the `task`, the `text` of the reply and its `calls`, as names and arguments. It
is played in a session of its own.
"""

import json
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
import yaml
from openenv.core import GenericEnvClient
from websockets.exceptions import WebSocketException

mode, package = sys.argv[1:]
sys.path.insert(0, package)

from server.app import app  # noqa: E402

results = sys.stdout
sys.stdout = sys.stderr  # servers print


@contextmanager
def serving() -> Iterator[str]:
    """Serve until the block ends; gives the base URL."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, args=([place],))
        thread.start()
        try:
            while not server.started:
                if not thread.is_alive():
                    raise RuntimeError("the server has not started")
                time.sleep(0.05)
            yield f"http://127.0.0.1:{place.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def tell(**fields: Any) -> None:
    """Print one line."""
    print(json.dumps(fields), file=results, flush=True)


def list_tasks(address: str) -> None:
    """Print what the Task API lists."""
    name = yaml.safe_load(Path(package, "openenv.yaml").read_text(encoding="utf-8"))["name"]
    found: dict[str, None] = {}
    for split in ask(f"{address}/{name}/splits"):
        count = ask(f"{address}/{name}/num_tasks", split=split["name"])["num_tasks"]
        tasks = ask(f"{address}/{name}/tasks", split=split["name"])["tasks"]
        if len(tasks) != count:
            tell(error=f"the split {split['name']} says it has {count} tasks, and lists {len(tasks)}")
        found |= dict.fromkeys(task["id"] for task in tasks)
    for id in found:
        tell(id=id)


def ask(address: str, **said: str) -> Any:
    """What the server answers: to a POST, where something is said."""
    body = json.dumps(said).encode() if said else None
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


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


with serving() as base:
    if mode == "list":
        list_tasks(base)
    else:
        for line in sys.stdin:
            score(base, **json.loads(line))
