"""Runs in Harbor's environment: loads the task folders that standard input names, as a JSON list.

Prints a JSON object a line: the folder, and the error where Harbor does not load it or `harbor run` would skip it.
"""

import json
import sys
import warnings
from pathlib import Path

from harbor.environments.definition import require_agent_environment_definition
from harbor.models.task.task import Task

warnings.simplefilter("ignore", DeprecationWarning)


def why_not(folder: Path) -> str | None:
    """Why Harbor does not load the task at `folder`; None if it does."""
    try:
        task = Task(folder)
        if not Task.is_valid_dir(folder):
            return "harbor run skips it: Task.is_valid_dir is false"
        image = task.config.environment.docker_image
        require_agent_environment_definition(task.paths.environment_dir, docker_image=image)
    except (OSError, ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


for name in json.load(sys.stdin):
    print(json.dumps({"folder": name, "error": why_not(Path(name))}), flush=True)
