"""Runs in NeMo Gym's environment: plays one task with the server of a Gym root, by its own routes, in this process.

    play.py SERVER TASK oracle|nop [REWARD_KEY]

SERVER is the folder of the server. Prints one JSON object: the reward, or null and the reason.
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml
from fastapi.testclient import TestClient
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import ServerClient
from omegaconf import OmegaConf

RESPONSE = {
    "id": "none",
    "created_at": 0.0,
    "model": "none",
    "object": "response",
    "output": [],
    "parallel_tool_calls": False,
    "tool_choice": "auto",
    "tools": [],
}
"""What an agent without a model said."""


def tell(reward: float | None, reason: str | None = None, *, started: bool = True) -> None:
    """Print the result."""
    print(json.dumps({"reward": reward, "reason": reason, "started": started}))


def row_of(root: Path, name: str, task: str) -> dict[str, Any] | None:
    """The row of a task in the environment of the server; None where the server does not play it."""
    for path in sorted((root / "environments" / name / "data").glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                row: dict[str, Any] = json.loads(line)
                if row["task_id"] == task:
                    return row
    return None


def server_of(folder: Path, **chosen: Any) -> Any:
    """The server in `folder`, as its environment configures it; `chosen` goes over that."""
    sys.path.insert(0, str(folder))  # as where Gym runs app.py
    from taskset_server.server import TasksetServer, TasksetServerConfig

    name = folder.name
    config = yaml.safe_load((folder.parents[1] / "environments" / name / "config.yaml").read_text(encoding="utf-8"))
    said = config[f"{name}_resources_server"]["resources_servers"][name]
    return TasksetServer(
        config=TasksetServerConfig.model_validate({**said, **chosen, "host": "127.0.0.1", "port": 1, "name": name}),
        server_client=ServerClient(
            head_server_config=BaseServerConfig(host="127.0.0.1", port=1), global_config_dict=OmegaConf.create({})
        ),
    )


def play(folder: Path, row: dict[str, Any], agent: str, reward_key: str | None) -> None:
    """Seed, act and verify."""
    server = server_of(folder, reward_key=reward_key)
    from taskset_server.runner import reference

    with TestClient(server.setup_webserver()) as client:
        seeded = client.post("/seed_session", json=row)
        if seeded.status_code != 200:
            tell(None, str(seeded.json()["detail"]))
            return
        if agent == "oracle":
            [session] = server.sessions.values()
            assert client.portal is not None
            try:
                client.portal.call(reference.play, session.box.main, session.folder, session.turn)
            except FileNotFoundError as error:
                tell(None, str(error))
                return
        verified = client.post("/verify", json={**row, "response": RESPONSE})
        if verified.status_code != 200:
            tell(None, str(verified.json()["detail"]))
            return
        answer = verified.json()
        tell(None if answer["mask_sample"] else answer["reward"], answer["failure_reason"])


def main(folder: Path, task: str, agent: str, reward_key: str | None) -> None:
    """Play a task, unless only Harbor does."""
    row = row_of(folder.parents[1], folder.name, task)
    if row is None:
        tell(None, "it is passed through to Harbor, which runs it behind Gym's harbor_agent_general", started=False)
    else:
        play(folder, row, agent, reward_key)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4] if len(sys.argv) > 4 else None)
