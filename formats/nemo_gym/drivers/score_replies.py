"""Runs in NeMo Gym's environment: scores replies with the server of a Gym root, by its own route, in this process.

    score_replies.py ENVIRONMENT < replies

ENVIRONMENT is a folder of `environments/`. Each line of standard input is a JSON object: the `task`, the `text` of the
reply and its `calls`, as names and arguments. A line is printed for each: the reward, or null and the reason.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from importlib import import_module
from itertools import cycle
from pathlib import Path
from typing import Any, TextIO, get_type_hints

import yaml
from fastapi.testclient import TestClient
from nemo_gym.base_resources_server import SimpleResourcesServer
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import ServerClient
from omegaconf import OmegaConf

RESPONSE = {
    "id": "none",
    "created_at": 0.0,
    "model": "none",
    "object": "response",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


def response_of(reply: dict[str, Any]) -> dict[str, Any]:
    """What a model server gives for a reply: a message where it says something, and an item for each call."""
    output: list[dict[str, Any]] = []
    if reply["text"] or not reply["calls"]:
        part = {"type": "output_text", "text": reply["text"], "annotations": []}
        message = {"id": "message", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
        output.append(message)
    for number, call in enumerate(reply["calls"]):
        output.append({"type": "function_call", "call_id": f"reply_{number}", "status": "completed", **call})
    return {**RESPONSE, "output": output}


def server_of(root: Path, name: str) -> Any:
    """The resources server of an environment, as its config has it."""
    config = yaml.safe_load((root / "environments" / name / "config.yaml").read_text(encoding="utf-8"))
    [(instance, [(server, said)])] = [
        (instance, list(block["resources_servers"].items()))
        for instance, block in config.items()
        if "resources_servers" in block
    ]
    folder = root / "resources_servers" / server
    if folder.is_dir():
        sys.path.insert(0, str(folder))  # as where Gym runs app.py
    module = import_module("app" if folder.is_dir() else f"resources_servers.{server}.app")
    [kind] = [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, SimpleResourcesServer) and kind.__module__ == module.__name__
    ]
    settings = get_type_hints(kind)["config"]
    client = ServerClient(
        head_server_config=BaseServerConfig(host="127.0.0.1", port=1), global_config_dict=OmegaConf.create({})
    )
    return kind(
        config=settings.model_validate({**said, "host": "127.0.0.1", "port": 1, "name": instance}), server_client=client
    )


def kept_rows(root: Path) -> dict[str, Iterator[str]]:
    """Ids of tasks by the rows of NeMo Gym's own that taskset.jsonl keeps: not all of them say their id."""
    ids: dict[str, list[str]] = {}
    with (root / "taskset.jsonl").open(encoding="utf-8") as lines:
        next(lines)
        for line in lines:
            task = json.loads(line)
            if (row := task.get("native", {}).get("nemo-gym")) is not None:
                ids.setdefault(json.dumps(row), []).append(task["id"])
    return {row: cycle(found) for row, found in ids.items()}


def numbered(path: Path, kept: dict[str, Iterator[str]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a file, each with the id of its task: that of the row that was kept, or the one that it says."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            row: dict[str, Any] = json.loads(line)
            ids = kept.get(json.dumps(row))
            yield (next(ids) if ids else str(row.get("task_id"))), row


def rows_of(environment: Path) -> dict[str, dict[str, Any]]:
    """The rows by the id of the task."""
    kept = kept_rows(environment.parents[1])
    files = sorted((environment / "data").glob("*.jsonl"))
    return {id: row for path in files for id, row in numbered(path, kept)}


def score(client: TestClient, row: dict[str, Any] | None, reply: dict[str, Any]) -> dict[str, Any]:
    """The reward of a reply, or None and the reason."""
    if row is None:
        return {"reward": None, "reason": f"no row is of the task {reply['task']!r}"}
    verified = client.post("/verify", json={**row, "response": response_of(reply)})
    if verified.status_code != 200:
        return {"reward": None, "reason": verified.text}
    answer = verified.json()
    return {"reward": None if answer.get("mask_sample") else answer["reward"], "reason": answer.get("failure_reason")}


def main(environment: Path, lines: Iterable[str], results: TextIO) -> None:
    """Score every reply of `lines`."""
    rows = rows_of(environment)
    server = server_of(environment.parents[1], environment.name)
    with TestClient(server.setup_webserver(), raise_server_exceptions=False) as client:
        for line in lines:
            reply = json.loads(line)
            print(json.dumps(score(client, rows.get(reply["task"]), reply)), file=results, flush=True)


if __name__ == "__main__":
    output = sys.stdout
    with redirect_stdout(sys.stderr):  # servers print
        main(Path(sys.argv[1]), sys.stdin, output)
