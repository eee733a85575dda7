"""The taskset written as an OpenEnv package."""

import json
import keyword
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.resources import files
from typing import Any

import msgspec

from envconvert.formats import packages
from envconvert.formats.files import Target
from envconvert.formats.harbor.packages import copy_runner
from envconvert.formats.harbor.writer import write_folder
from envconvert.formats.losses import Ledger, Loss
from envconvert.formats.openenv import fidelity
from envconvert.formats.repository import TASKS, SharedTasks, address
from envconvert.formats.taskset import ContainerTask, Taskset

_RELEASE = "0.10.0"
_BASE_IMAGE = "python:3.12-slim"
"""What the server's image is made from where no image is shared by the tasks."""

_SESSIONS = 8
"""How many the server lets in (package/server/app.py)."""

_SPLIT = "train"


class Written(msgspec.Struct, frozen=True, gc=False):
    """What the package says of a task that was written. Limits are those of its container; None: not limited."""

    id: str
    served: bool
    image: str | None
    seconds: float
    cpus: int | float | None
    memory_mb: int | None
    storage_mb: int | None
    gpus: int


def package_name(name: str) -> str:
    """The package of the taskset ORG/NAME: NAME in lower case with `_`, ending in `_env`."""
    base = re.sub(r"[^a-z0-9_]", "_", name.rpartition("/")[2].lower()).removesuffix("_env")
    return f"{base}_env" if base.isidentifier() and not keyword.iskeyword(base) else f"env_{base}_env"


def class_prefix(package: str) -> str:
    """How the client's class begins, which OpenEnv infers from the package's name (auto/_discovery.py)."""
    return "".join(word.capitalize() for word in package.replace("_env", "").split("_"))


def losses_of(task: ContainerTask, taskset: Taskset) -> Iterator[Loss]:
    """What `task` loses besides its parts."""
    return fidelity.losses_of(task)


def write_task(task: ContainerTask, taskset: Taskset, target: Target, ledger: Ledger) -> Written | None:
    """Write `task` to `tasks/<id>/`."""
    folder = write_folder(task, target, f"{TASKS}/{task.id}", ledger)
    return None if folder is None else listed(task, taskset, folder, ledger)


def listed(task: ContainerTask, taskset: Taskset, folder: Target, ledger: Ledger) -> Written:
    """What the package says of `task`, which was written to `folder`."""
    container = task.container
    return Written(
        id=task.id,
        served=fidelity.not_served(task) is None,
        image=container.image,
        seconds=fidelity.EPISODE_SECONDS if task.limits.agent is None else fidelity.episode_seconds(task),
        cpus=container.cpus,
        memory_mb=container.memory_mb,
        storage_mb=container.storage_mb,
        gpus=container.gpus or 0,
    )


def write_rest(
    taskset: Taskset, target: Target, ledger: Ledger, written: Iterable[Written], shared: SharedTasks | None = None
) -> None:
    """Write the package around its tasks."""
    tasks = list(written)
    package = files(__package__) / "package"
    packages.copy_code(package, target, "")
    packages.copy_code(package / "server", target, "server")
    copy_runner(target, "server/runner")
    values = _values(taskset, tasks)
    target.write("server/settings.json", _settings(taskset, tasks, values, shared))
    sets = packages.sets_of(taskset, {task.id for task in tasks})
    target.write(packages.HEADER, packages.header(taskset, shared, sets))
    if values["example"] is not None:
        target.write("validation/runtime.json", _plan(values["example"]))
    for path in _RENDERED:
        if path == "README.md" and shared is not None:
            continue  # the repository has its own
        template = (package / f"{path}.jinja").read_text("utf-8")
        target.write(_RENDERED[path], packages.TEMPLATES.from_string(template).render(values))


def commands(taskset: Taskset, example: str) -> str:
    """Shell lines that run a repository on the Hub: a task as Harbor runs it, and a session on the server."""
    play = (
        "from openenv.core import GenericEnvClient",
        "with GenericEnvClient(base_url='http://127.0.0.1:8000', message_timeout_s=3600).sync() as env:",
        f"    env.reset(task_id={example!r})",
        "    print(env.step({'kind': 'exec', 'command': 'ls -la', 'timeout_s': 60}).observation)",
        "    print(env.step({'kind': 'submit'}).reward)",
    )
    return "\n".join(
        (
            f"git clone {address(taskset.name)} && cd {taskset.name.rpartition('/')[2]}",
            f"uv pip install 'openenv=={_RELEASE}' 'harbor==0.25.0' 'pathspec>=0.12'",
            "openenv harbor rollout --dataset . --task-index 0 --harness terminus-2 --sandbox docker \\",
            '    --expose direct --model "$MODEL" --llm-url "$LLM_URL"',
            "# As a server: every session gets a container, where `exec` runs commands and `submit` the tests.",
            "uvicorn server.app:app --port 8000 & sleep 10",
            "python - <<'EOF'",
            *play,
            "EOF",
        )
    )


_RENDERED = {
    "__init__.py": "__init__.py",
    "client.py": "client.py",
    "openenv.yaml": "openenv.yaml",
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "dockerignore": ".dockerignore",
    "server/Dockerfile": "server/Dockerfile",
}
"""Templates, and the files that they become."""


def _values(taskset: Taskset, tasks: list[Written]) -> dict[str, Any]:
    package = package_name(taskset.name)
    prefix = class_prefix(package)
    served = [task for task in tasks if task.served]
    images = Counter(task.image for task in served if task.image)
    image = images.most_common(1)[0][0] if images else None
    splits = packages.sets_of(taskset, {task.id for task in served})
    return {
        "name": taskset.name,
        "package": package,
        "repository": package.removesuffix("_env"),
        "prefix": prefix,
        "exports": sorted([f"{prefix}Env", "ContainerAction", "ContainerObservation", "ContainerState"]),
        "version": packages.pip_version(taskset.version),
        "description": packages.about(taskset, "OpenEnv"),
        "release": _RELEASE,
        "reward_key": taskset.reward.key,
        "sessions": _SESSIONS,
        "tasks": len(tasks),
        "served": len(served),
        "splits": {split: len(ids) for split, ids in splits.items()} or {_SPLIT: len(served)},
        "example": served[0].id if served else None,
        "image": image or _BASE_IMAGE,
        "task": next((task.id for task in served if image and task.image == image), ""),
        "seconds": min(max((task.seconds for task in served), default=0) or 60, fidelity.EPISODE_SECONDS),
        "cpus": max((task.cpus for task in served if task.cpus), default=1),
        "memory_mb": max((task.memory_mb for task in served if task.memory_mb), default=2048),
        "storage_mb": max((task.storage_mb for task in served if task.storage_mb), default=4096),
        "gpus": max((task.gpus for task in served), default=0),
    }


def _settings(taskset: Taskset, tasks: list[Written], values: dict[str, Any], shared: SharedTasks | None) -> str:
    settings = {
        "taskset": taskset.name,
        "package": values["package"],
        "repository": values["repository"],
        "reward_key": taskset.reward.key,
        "splits": packages.sets_of(taskset, {task.id for task in tasks if task.served}),
        "left_out": list(shared.left_out) if shared else [],
    }
    return json.dumps(settings, ensure_ascii=False, indent=2) + "\n"


def _plan(task: str) -> str:
    """What `openenv validate` plays at its level `runtime`: a task, left as it is."""
    plan = {
        "plan_schema_version": "1",
        "reset": {"episode_id": "validation", "seed": 0, "options": {"task_id": task}},
        "actions": [{"kind": "exec", "command": "pwd"}, {"kind": "submit"}],
    }
    return json.dumps(plan, indent=2) + "\n"
