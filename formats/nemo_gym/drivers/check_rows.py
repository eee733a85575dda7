"""Runs in NeMo Gym's environment, with the Gym root ROOT as its only argument and search root: checks every row.

Prints one JSON object a line: the id of a task whose rows are all that they must be, or an error. Gym itself collates
what is no valid request, and only complains when it is made (0.7.0, train_data_utils.py).
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from nemo_gym.base_resources_server import BaseRunRequest
from nemo_gym.openai_utils import NeMoGymResponseMcpListTools
from nemo_gym.task_data import TaskDataValidator, find_server_dir, load_task_data_schema
from score_replies import kept_rows, numbered

_RESERVED = {"agent_ref", "task_source", "skills_ref", "task_input", "task_data", "verifier_metadata", "reward"}


def tell(**fields: str) -> None:
    """Print one line."""
    print(json.dumps(fields), flush=True)


def problems(row: dict[str, Any]) -> Iterator[str]:
    """What is wrong with a row that was made here, for any agent."""
    if reserved := [key for key in row if key in _RESERVED or key.startswith("_ng_")]:
        yield f"it has the keys {reserved}, which are Gym's"
    if nulls := [key for key, value in row.items() if value is None]:
        yield f"it has nulls for {nulls}"
    if not isinstance(row.get("task_id"), str):
        yield "its task_id is no text"


def unsent(row: dict[str, Any]) -> Iterator[str]:
    """What of a row would not reach the model."""
    said = BaseRunRequest.model_validate(row).responses_create_params.input
    if any(isinstance(item, NeMoGymResponseMcpListTools) for item in said if not isinstance(said, str)):
        yield "a message of it is taken for something else, and would not reach the model"


def check(
    root: Path, config: dict[str, Any], block: dict[str, Any], tasks: Path | None, wrong: set[str], seen: set[str]
) -> None:
    """Check the rows of an agent's datasets; ids go to `seen`, and those of bad ones to `wrong` too."""
    server: str | None = None
    if "resources_server" in block:  # else Harbor plays it
        [server] = config[block["resources_server"]["name"]]["resources_servers"]
    # Rows for a server that NeMo Gym ships were carried as they are.
    carried = server is not None and not (root / "resources_servers" / server).is_dir()
    folder = None if server is None or carried else find_server_dir(server)
    schema = None if folder is None else load_task_data_schema(folder)
    kept = kept_rows(root) if carried else {}
    for dataset in block["datasets"]:
        path = root / dataset["jsonl_fpath"]
        validator = None if server is None or schema is None else TaskDataValidator(server, schema, str(path))
        for number, (id, row) in enumerate(numbered(path, kept)):
            seen.add(id)
            try:
                found = [*unsent(row), *([] if carried else problems(row))]
            except ValueError as error:
                found = [f"it is no request: {error}"]
            if tasks is not None and (not (tasks / id).is_dir() or row.get("task_name", id) != id):
                found.append("its task has no folder")
            if validator is not None:
                validator.validate_row(number, row)
            for problem in found:
                wrong.add(id)
                tell(error=f"{dataset['jsonl_fpath']}: row {number + 1} ({id}): {problem}")
        if validator is not None and not validator.report.clean:
            wrong |= seen
            tell(error=f"{dataset['jsonl_fpath']}: {validator.report.summary()}")


def main(root: Path) -> None:
    """Check every environment of the Gym root."""
    # None: the tasks ask for replies, and are all in their rows.
    tasks = next((place for place in (root / "tasks", root.parent / "tasks") if place.is_dir()), None)
    wrong: set[str] = set()
    seen: set[str] = set()
    for path in sorted(root.glob("environments/*/config.yaml")):
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        for instance in config.values():
            for block in instance.get("responses_api_agents", {}).values():
                check(root, config, block, tasks, wrong, seen)
    for id in sorted(seen - wrong):
        tell(id=id)


main(Path(sys.argv[1]))
