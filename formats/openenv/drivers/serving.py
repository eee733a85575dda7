"""What the drivers of OpenEnv have in common: a server on loopback, and what its Task API lists."""

import json
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
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


def tasks_listed(address: str, name: str, tell: Callable[..., None]) -> dict[str, None]:
    """The ids that the Task API of the environment `name` lists, in order; `tell` hears where it contradicts itself."""
    found: dict[str, None] = {}
    for split in _ask(f"{address}/{name}/splits"):
        count = _ask(f"{address}/{name}/num_tasks", split=split["name"])["num_tasks"]
        tasks = _ask(f"{address}/{name}/tasks", split=split["name"])["tasks"]
        if len(tasks) != count:
            tell(error=f"the split {split['name']} says it has {count} tasks, and lists {len(tasks)}")
        found |= dict.fromkeys(task["id"] for task in tasks)
    return found


def _ask(address: str, **said: str) -> Any:
    """What the server answers: to a POST, where something is said."""
    body = json.dumps(said).encode() if said else None
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)
