"""The taskset written as a Verifiers package."""

import shlex
from collections.abc import Iterable, Iterator
from importlib.resources import files
from typing import Any

from envconvert.formats import packages
from envconvert.formats.files import Target
from envconvert.formats.harbor.packages import copy_runner, image_repository
from envconvert.formats.harbor.writer import write_folder
from envconvert.formats.losses import Ledger, Loss
from envconvert.formats.names import module_name
from envconvert.formats.repository import TASKS, SharedTasks, address
from envconvert.formats.taskset import ContainerTask, Taskset
from envconvert.formats.verifiers import fidelity

_RELEASE = "0.4.0"


def losses_of(task: ContainerTask, taskset: Taskset) -> Iterator[Loss]:
    """What `task` loses besides its parts."""
    return fidelity.losses_of(task)


def write_task(task: ContainerTask, taskset: Taskset, target: Target, ledger: Ledger) -> str | None:
    """Write `task` to the package's `tasks/<id>/`; its id."""
    folder = write_folder(task, target, f"{module_name(taskset.name)}/{TASKS}/{task.id}", ledger)
    return None if folder is None else listed(task, taskset, folder, ledger)


def listed(task: ContainerTask, taskset: Taskset, folder: Target, ledger: Ledger) -> str:
    """The id of `task`."""
    return task.id


def write_rest(
    taskset: Taskset, target: Target, ledger: Ledger, written: Iterable[str], shared: SharedTasks | None = None
) -> None:
    """Write the package around its tasks."""
    module = module_name(taskset.name)
    ids = iter(written)
    example = next(ids, "")
    for _ in ids:  # all must be written before they are counted
        pass
    package = files(__package__) / "package"
    packages.copy_code(package, target, module)
    copy_runner(target, f"{module}/runner")
    target.write(f"{module}/{packages.HEADER}", packages.header(taskset, shared))
    values: dict[str, Any] = {
        "name": taskset.name,
        "module": module,
        "distribution": module.replace("_", "-"),
        "version": packages.pip_version(taskset.version),
        "description": packages.about(taskset, "Verifiers"),
        "release": _RELEASE,
        "tasks": ledger.written,
        "example": example,
        "repository": image_repository(module),
        "reward_key": taskset.reward.key,
        "shared": shared is not None,
    }
    for name in ("pyproject.toml", "README.md"):
        template = (package / f"{name}.jinja").read_text("utf-8")
        target.write(name, packages.TEMPLATES.from_string(template).render(values))


def commands(taskset: Taskset, example: str) -> str:
    """Shell lines that run `example` of a repository on the Hub."""
    source = f"git+{address(taskset.name)}#subdirectory=verifiers"
    return "\n".join(
        (
            f"uv pip install {shlex.quote(source)}",
            f"vf-eval {module_name(taskset.name)} --env.agent.runtime.type docker --no-push \\",
            f'    --select.include.ids {shlex.quote(example)} --model "$MODEL" --client.base-url "$LLM_URL"',
        )
    )
