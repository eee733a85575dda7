"""The taskset written as a Verifiers package."""

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import tomli_w
from jinja2 import Environment, StrictUndefined

from envconvert.formats.files import Target
from envconvert.formats.harbor.writer import write_folder, write_runner
from envconvert.formats.losses import Ledger, Loss
from envconvert.formats.names import module_name
from envconvert.formats.repository import TASKS, SharedTasks, address
from envconvert.formats.taskset import Task, Taskset
from envconvert.formats.verifiers import fidelity

_RELEASE = "0.4.0"


def losses_of(task: Task, taskset: Taskset) -> Iterator[Loss]:
    """What `task` loses besides its parts."""
    return fidelity.losses_of(task)


def write_task(task: Task, taskset: Taskset, target: Target, ledger: Ledger) -> str | None:
    """Write `task` to the package's `tasks/<id>/`; its id."""
    folder = write_folder(task, target, f"{module_name(taskset.name)}/{TASKS}/{task.id}", ledger)
    return None if folder is None else listed(task, taskset, folder, ledger)


def listed(task: Task, taskset: Taskset, folder: Target, ledger: Ledger) -> str:
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
    for source in _sources(package):
        target.write(f"{module}/{source.name}", source.read_bytes())
    write_runner(target, f"{module}/runner")
    target.write(f"{module}/taskset.jsonl", _header(taskset, shared))
    values: dict[str, Any] = {
        "name": taskset.name,
        "module": module,
        "distribution": module.replace("_", "-"),
        "version": _version(taskset.version),
        "description": _one_line(taskset.description) or f"{taskset.name} for Verifiers.",
        "release": _RELEASE,
        "tasks": ledger.written,
        "example": example,
        "repository": re.sub(r"[^a-z0-9]+", "_", module).strip("_"),  # as runner/build_context.py names images
        "reward_key": taskset.reward.key,
        "shared": shared is not None,
    }
    for name in ("pyproject.toml", "README.md"):
        template = (package / f"{name}.jinja").read_text("utf-8")
        target.write(name, _ENVIRONMENT.from_string(template).render(values))


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


_ENVIRONMENT = Environment(undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True, autoescape=False)
_ENVIRONMENT.filters["toml"] = lambda text: tomli_w.dumps({"_": text}).removeprefix("_ = ").rstrip("\n")


def _sources(package: Traversable) -> list[Traversable]:
    return sorted((item for item in package.iterdir() if item.name.endswith(".py")), key=lambda item: item.name)


def _header(taskset: Taskset, shared: SharedTasks | None) -> str:
    header: dict[str, Any] = {
        "name": taskset.name,
        "version": taskset.version,
        "description": taskset.description,
        "licence": taskset.licence,
        "authors": [{"name": author.name, "email": author.email} for author in taskset.authors],
        "keywords": list(taskset.keywords),
        "reward_key": taskset.reward.key,
    }
    if shared is not None:
        header["left_out"] = list(shared.left_out)
    return json.dumps(header, ensure_ascii=False) + "\n"


def _version(version: str | None) -> str:
    """A version that pip takes: the taskset's own where it is one."""
    return (
        version if version and re.fullmatch(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?", version) else "0.1.0"
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())
