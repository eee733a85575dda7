"""The taskset written as a Gym root."""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from typing import Any

import msgspec
import yaml
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from envconvert.formats import losses, packages
from envconvert.formats.files import Target
from envconvert.formats.harbor.packages import copy_runner, image_repository
from envconvert.formats.harbor.writer import write_folder
from envconvert.formats.losses import Ledger, Loss
from envconvert.formats.names import module_name
from envconvert.formats.nemo_gym import fidelity
from envconvert.formats.repository import TASKS, SharedTasks, address
from envconvert.formats.taskset import ContainerTask, Message, Taskset

_RELEASE = "0.7.0"

_SET = "train"
"""The one dataset of a taskset whose sets tell no tasks apart."""

_REST = "unassigned"
"""The dataset of tasks that are in none of several sets."""

_TYPES = {"train": "train", "training": "train", "example": "example", "examples": "example"}
_VALIDATION = {"validation", "valid", "val", "dev", "test", "testing", "eval", "evaluation"}

_LICENCES = {
    "Apache-2.0": "Apache 2.0",
    "MIT": "MIT",
    "CC-BY-4.0": "Creative Commons Attribution 4.0 International",
    "CC-BY-SA-4.0": "Creative Commons Attribution-ShareAlike 4.0 International",
    "CC-BY-NC-3.0": "CC BY-NC 3.0",
    "GPL-3.0-only": "GNU General Public License v3.0",
    "GPL-3.0-or-later": "GNU General Public License v3.0",
}
"""What Gym's config takes, by SPDX (nemo_gym/config_types.py); of anything else it takes only `TBD`."""

_TOOL = {
    "type": "function",
    "name": "bash",
    "description": "Run a command with bash in the task's container. Every call is a new shell in the task's working "
    "folder; what is left of files and of processes in the background stays.",
    "parameters": {
        "type": "object",
        "properties": {"command": {"type": "string", "description": "What bash -c is given."}},
        "required": ["command"],
        "additionalProperties": False,
    },
    "strict": True,
}


class Written(msgspec.Struct, frozen=True, gc=False):
    """A task that was written."""

    id: str
    row: str | None
    """The line of JSON that the server plays; None where only Harbor plays the task."""


def losses_of(task: ContainerTask, taskset: Taskset) -> Iterator[Loss]:
    """What `task` loses besides its parts."""
    return fidelity.losses_of(task)


def write_task(task: ContainerTask, taskset: Taskset, target: Target, ledger: Ledger) -> Written | None:
    """Write `task` to `tasks/<id>/`."""
    folder = write_folder(task, target, f"{TASKS}/{task.id}", ledger)
    return None if folder is None else listed(task, taskset, folder, ledger)


def listed(task: ContainerTask, taskset: Taskset, folder: Target, ledger: Ledger) -> Written:
    """The row of `task`."""
    served = fidelity.passed_through(task) is None
    return Written(task.id, _row(task.id, task.prompt) if served else None)


def write_rest(
    taskset: Taskset, target: Target, ledger: Ledger, written: Iterable[Written], shared: SharedTasks | None = None
) -> None:
    """Write the environments, their rows, and the server."""
    tasks = list(written)
    name = module_name(taskset.name)
    sets = _sets(taskset, [task.id for task in tasks])
    ledger.admit("", _losses(taskset))
    rows = {task.id: task.row for task in tasks if task.row is not None}
    values: dict[str, Any] = {
        "title": taskset.name,
        "description": packages.about(taskset, "NeMo Gym"),
        "name": name,
        "release": _RELEASE,
        "tasks": len(tasks),
        "served": len(rows),
        "split": _type(next((title for title, ids in sets.items() if any(id in rows for id in ids)), _SET)),
        "repository": image_repository(name),
        "reward_key": taskset.reward.key,
        "shared": shared is not None,
    }
    kept = packages.sets_of(taskset, {task.id for task in tasks})
    target.write(packages.HEADER, packages.header(taskset, shared, kept))
    if rows:
        _write_environment(taskset, target, name, _server(taskset, name), _kept(sets, rows))
        _write_server(target, name)
    pointers = {task.id: _pointer(task.id) for task in tasks}
    place = f"${{oc.env:NEMO_GYM_EXTRA_ROOTS}}/{'../' if shared else ''}{TASKS}"
    harbor = _harbor(taskset, f"{name}_harbor", place)
    _write_environment(taskset, target, f"{name}_harbor", harbor, _kept(sets, pointers))
    if shared is None:  # else the repository has its own
        template = (files(__package__) / "package" / "README.md.jinja").read_text("utf-8")
        target.write("README.md", packages.TEMPLATES.from_string(template).render(values))


def commands(taskset: Taskset, example: str) -> str:
    """Shell lines that run a repository on the Hub. Gym cannot be told which of its rows, so not `example`, but one."""
    name = module_name(taskset.name)
    sets = taskset.sets if taskset.is_divided else {}
    split = _type(next((title for title, ids in sets.items() if example in ids), _SET))
    folder = taskset.name.rpartition("/")[2]
    return "\n".join(
        (
            f"git clone {shlex.quote(address(taskset.name))} {shlex.quote(folder)}",
            f"uv tool install --python 3.13 'nemo-gym=={_RELEASE}'",
            f'gym eval run --environment {name} --search-dir "$PWD"/{shlex.quote(folder)}/nemo_gym \\',
            f"    --split {split} --limit 1 --output rollouts.jsonl \\",
            '    --model-type vllm_model --model "$MODEL" --model-url "$LLM_URL" --model-api-key "$LLM_KEY"',
        )
    )


def _losses(taskset: Taskset) -> Iterator[Loss]:
    """What the taskset loses as a whole."""
    spdx = _spdx(taskset.licence)
    if taskset.licence is not None and spdx not in _LICENCES:
        yield losses.LICENCE_UNLISTED.loss(task="", format=fidelity.NAME, field="licence", value=taskset.licence)
    for name in taskset.sets if taskset.is_divided else ():
        if name != _type(name):
            yield losses.SET_TYPE.loss(task="", format=fidelity.NAME, field="sets", value=name, type=_type(name))


def _row(id: str, prompt: tuple[Message, ...]) -> str:
    said = [{"type": "message", "role": message.role, "content": message.text} for message in prompt]
    return _line({"responses_create_params": {"input": said, "tools": [_TOOL]}, "task_id": id})


def _pointer(id: str) -> str:
    """A row for harbor_agent_general, which reads the prompt in the task's folder."""
    return _line({"responses_create_params": {"input": []}, "task_id": id, "task_name": id})


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"


def _sets(taskset: Taskset, ids: list[str]) -> dict[str, tuple[str, ...]]:
    """The datasets, by name: every task of `ids` is in one of them."""
    if not taskset.is_divided:
        return {_SET: tuple(ids)}
    wanted = set(ids)
    sets = {name: tuple(id for id in members if id in wanted) for name, members in taskset.sets.items()}
    assigned = {id for members in sets.values() for id in members}
    rest = tuple(id for id in ids if id not in assigned)
    return {**sets, **({_REST: rest} if rest else {})}


def _kept(sets: Mapping[str, tuple[str, ...]], rows: Mapping[str, str]) -> dict[str, list[str]]:
    """The lines of each dataset that has some: Gym refuses an empty file."""
    lines = {name: [rows[id] for id in ids if id in rows] for name, ids in sets.items()}
    return {name: found for name, found in lines.items() if found}


def _type(name: str) -> str:
    """The type of a dataset, of which Gym has no other: train, validation or example."""
    return _TYPES.get(name.lower()) or ("validation" if name.lower() in _VALIDATION else "train")


def _write_environment(
    taskset: Taskset, target: Target, name: str, agent: dict[str, Any], lines: Mapping[str, list[str]]
) -> None:
    """Write environments/<name>/; `agent` is its config but for the datasets of the agent."""
    place = f"environments/{name}"
    datasets = []
    for number, (title, rows) in enumerate(lines.items()):
        file = f"{place}/data/{_file_name(title, number)}.jsonl"
        target.write(file, "".join(rows))
        datasets.append({"name": title, "type": _type(title), "jsonl_fpath": file})
    [(kind, block)] = agent[f"{name}_agent"]["responses_api_agents"].items()
    licence = _LICENCES.get(_spdx(taskset.licence) or "", "TBD")
    block["datasets"] = [{**dataset, "license": licence} for dataset in datasets]
    target.write(f"{place}/config.yaml", _yaml(agent))
    manifest = {
        "name": name,
        "version": taskset.version or "0.1.0",
        "kind": "environment",
        "integration_profile": "custom-gym-verifier" if kind == "simple_agent" else "external-agent-loop",
        "domain": "agent",
        "description": packages.about(taskset, "NeMo Gym"),
        "modality": "text",
        "licensing": _spdx(taskset.licence) or "unknown",
        "authors": list(dict.fromkeys(author.name for author in taskset.authors)) or [taskset.name.partition("/")[0]],
        "reward": {"range": [0.0, 1.0], "higher_is_better": True},
        "resources_server": name if kind == "simple_agent" else None,
        "agent_server": kind,
        "datasets": [{**dataset, "num_repeats": 1} for dataset in datasets],
        "model_server": "policy_model" if kind == "simple_agent" else None,
        "state": "per_session",
        "sandbox": "docker",
    }
    target.write(
        f"{place}/manifest.yaml",
        _yaml({key: value for key, value in manifest.items() if value is not None or key == "resources_server"}),
    )


def _file_name(title: str, number: int) -> str:
    """A name for the file of the dataset `title`: the same where it is one for every file system."""
    return title if re.fullmatch(r"[a-z0-9_]{1,100}", title) else f"set_{number}"


def _server(taskset: Taskset, name: str) -> dict[str, Any]:
    server = {
        "entrypoint": "app.py",
        "domain": "agent",
        "verified": False,
        "description": f"{taskset.name}: container tasks, verified by their own tests",
        "sandbox_provider": {"docker": {}},
    }
    agent = {
        "entrypoint": "app.py",
        "resources_server": {"type": "resources_servers", "name": f"{name}_resources_server"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    return {
        f"{name}_resources_server": {"resources_servers": {name: server}},
        f"{name}_agent": {"responses_api_agents": {"simple_agent": agent}},
    }


def _harbor(taskset: Taskset, name: str, place: str) -> dict[str, Any]:
    agent = {
        "entrypoint": "app.py",
        "domain": "agent",
        "description": f"{taskset.name}: container tasks, run by Harbor",
        "harbor_jobs_dir": "${oc.env:NEMO_GYM_EXTRA_ROOTS}/results/harbor",
        "harbor_reward_key": taskset.reward.key,
        "harbor_dataset": {"path": place},
        "harbor_environment": {"type": "docker"},
        # litellm, by which this agent of Harbor's reaches a model, wants the kind of endpoint before the model's name.
        "harbor_agent": {
            "name": "terminus-2",
            "model_name": "openai/${policy_model_name}",
            "kwargs": {"api_base": "${policy_base_url}"},
        },
    }
    return {f"{name}_agent": {"responses_api_agents": {"harbor_agent_general": agent}}}


def _write_server(target: Target, name: str) -> None:
    place = f"resources_servers/{name}"
    package = files(__package__) / "package"
    packages.copy_code(package, target, place, (".py", ".txt"))
    packages.copy_code(package / "taskset_server", target, f"{place}/taskset_server")
    copy_runner(target, f"{place}/taskset_server/runner")


def _spdx(licence: str | None) -> str | None:
    """The licence as SPDX spells it; None where it is no SPDX expression."""
    try:
        return None if licence is None else str(canonicalize_license_expression(licence))
    except InvalidLicenseExpression:
        return None


def _yaml(value: Mapping[str, Any]) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=110)
