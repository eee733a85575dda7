"""The taskset written as Harbor: `tasks/<id>/`, `registry.json` and `dataset.toml`.

A task that came from Harbor is carried byte for byte; else its folder is made from its parts. Other layouts that store
a containerised task on disk call `write_folder` too.
"""

import datetime
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import tomli_w

from envconvert.formats import losses
from envconvert.formats.files import Entry, Target, Tree, UnsafeTreeError, walk
from envconvert.formats.harbor import registry, tables
from envconvert.formats.harbor.digest import package_digest
from envconvert.formats.harbor.reader import NAME
from envconvert.formats.harbor.registry import HEAD
from envconvert.formats.harbor.runner.shards import shard
from envconvert.formats.losses import Ledger, Loss
from envconvert.formats.repository import TASKS, SharedTasks, address
from envconvert.formats.taskset import (
    Act,
    Artifact,
    Attempt,
    Author,
    Collect,
    Container,
    ContainerTask,
    Healthcheck,
    Limits,
    Message,
    NetworkPolicy,
    Server,
    Step,
    Steps,
    Taskset,
    Tests,
    unchanged,
)


class Written(msgspec.Struct, frozen=True, gc=False):
    """What is listed of a task that was written."""

    id: str
    package: str | None = None
    """The name under which dataset.toml lists it; None: not there."""
    digest: str = ""


def task_path(id: str, *, sharded: bool) -> str:
    """Where the folder of a task stands; `sharded` where there are more than one folder may hold."""
    return f"{TASKS}/{shard(id)}/{id}" if sharded else f"{TASKS}/{id}"


def write_task(task: ContainerTask, taskset: Taskset, target: Target, ledger: Ledger) -> Written | None:
    """Write `task` to `tasks/<id>/`."""
    folder = write_folder(task, target, f"{TASKS}/{task.id}", ledger)
    return None if folder is None else listed(task, taskset, folder, ledger)


def listed(task: ContainerTask, taskset: Taskset, folder: Target, ledger: Ledger) -> Written:
    """What is listed of `task`, which was written to `folder`."""
    if task.package is None:
        return Written(task.id)
    files = carried_files(task)
    tree = walk(folder.place) if files is None else Tree(folder.place, files.entries)
    try:
        return Written(task.id, task.package.name, package_digest(tree, folder.contents))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)  # no path: it is that of the stage
        loss = losses.PACKAGE_UNDIGESTED.loss(task=task.id, format=NAME, field="task.name", value=reason)
        ledger.admit(task.id, [loss])
        return Written(task.id)


def write_rest(
    taskset: Taskset, target: Target, ledger: Ledger, written: Iterable[Written], shared: SharedTasks | None = None
) -> None:
    """Write registry.json and dataset.toml, which list only the tasks that are written as Harbor."""
    tasks = list(written)
    sharded = shared is not None and shared.sharded
    target.write("registry.json", _registry(taskset, tasks, sharded=sharded))
    target.write("dataset.toml", _dataset(taskset, tasks))


def commands(taskset: Taskset, example: str) -> str:
    """Shell lines that run `example` of a repository on the Hub."""
    dataset = f"{taskset.name.rpartition('/')[2]}@{taskset.version or HEAD}"
    return "\n".join(
        (
            "uv pip install 'harbor==0.25.0'",
            f"harbor run --repo {address(taskset.name)} --dataset {shlex.quote(dataset)} \\",
            f"    --include-task-name {shlex.quote(example)} --agent oracle",
        )
    )


def losses_of(task: ContainerTask, taskset: Taskset) -> Iterator[Loss]:
    """The losses of `task` beside its parts (parts.py)."""
    if task.package is None:
        yield losses.PACKAGE_UNNAMED.loss(task=task.id, format=NAME, field="task.name")
    if task.reward.key != "reward":
        yield losses.REWARD_KEY.loss(task=task.id, format=NAME, field="reward.key", value=task.reward.key)
    if carried_files(task) is not None:
        return
    limits = {"limits.build": task.limits.build, "limits.tests": task.limits.tests}
    for number, step in enumerate(_steps(task)):
        limits[f"interaction.steps[{number}].limits.tests"] = step.limits.tests
        if step.reference is not None and dict(step.reference.env) != _solution_env(task):
            field = f"interaction.steps[{number}].reference.env"
            yield losses.REFERENCE_ENV.loss(task=task.id, format=NAME, field=field, value=sorted(step.reference.env))
    for field, limit in limits.items():
        if limit is None:
            name = field.rpartition(".")[2]
            yield losses.LIMIT_DEFAULT.loss(task=task.id, format=NAME, field=field, value=name)


def _steps(task: ContainerTask) -> tuple[Step, ...]:
    return task.interaction.steps if isinstance(task.interaction, Steps) else ()


def carried_files(task: ContainerTask) -> Tree | None:
    """The Harbor folder that `task` came from, unless a part was changed since."""
    native = task.native.get(NAME)
    return native.files if native is not None and unchanged(task, native.parts) else None


def write_folder(task: ContainerTask, target: Target, path: str, ledger: Ledger) -> Target | None:
    """Write one task as a Harbor folder at `path`: byte for byte where it came from one, else from its parts.

    None, and nothing written, where a file of the task cannot be read or has changed since the task was read.
    """
    native = task.native.get(NAME)
    try:
        with target.folder(path, source=native.place if native else "") as folder:
            _fill(folder, task)
    except UnsafeTreeError as error:
        ledger.admit(task.id, [error.kind.loss(task=task.id, format=NAME, field=error.path, **error.values)])
        return None
    ledger.written += 1
    return folder


def _fill(folder: Target, task: ContainerTask) -> None:
    files = carried_files(task)
    if files is not None:
        folder.copy(files)
        return
    folder.write("task.toml", task_toml(task))
    if isinstance(task.interaction, Act):
        folder.write("instruction.md", _instruction(task.prompt))
    for step in _steps(task):
        folder.write(f"steps/{step.name}/instruction.md", _instruction(step.prompt))
    trees = {place: tree for place, tree in _trees(task) if tree is not None}
    for place, tree in trees.items():
        folder.copy(tree, place)
    _check_links(folder, trees)


def files_of(task: ContainerTask) -> Iterator[Entry]:
    """What `write_folder` writes of the files of `task`, by its path in the folder."""
    carried = carried_files(task)
    if carried is not None:
        yield from carried.entries
        return
    for place, tree in _trees(task):
        for entry in tree.entries if tree else ():
            yield Entry(f"{place}/{entry.path}" if place else entry.path, entry.kind, entry.target)


def _trees(task: ContainerTask) -> Iterator[tuple[str, Tree | None]]:
    """Where the trees of a task's parts go. A folder's own file is last: it may bring a mode that forbids writing."""
    yield "environment", task.container.build.context if task.container.build else task.container.files
    yield "tests", task.tests.files
    yield "solution", _files(task.reference)
    for step in _steps(task):
        place = f"steps/{step.name}"
        yield f"{place}/workdir", step.setup
        yield f"{place}/tests", step.tests.files
        yield f"{place}/solution", _files(step.reference)
        yield place, step.resumes
    if isinstance(task.interaction, Act):
        yield "", task.interaction.resumes


def _check_links(folder: Target, trees: Mapping[str, Tree]) -> None:
    """Raise `UnsafeTreeError` where a link that led somewhere in the source no longer does, or leads out."""
    links = [(place, tree, entry) for place, tree in trees.items() for entry in tree.entries if entry.kind == "link"]
    for place, tree, entry in links:
        if os.path.exists(f"{tree.place}/{entry.path}") and not os.path.exists(f"{folder.place}/{place}/{entry.path}"):
            raise UnsafeTreeError(losses.LINK_LOST, f"{place}/{entry.path}", value=entry.target)
    if links:
        walk(folder.place)


def _files(attempt: Attempt | None) -> Tree | None:
    return attempt.files if attempt else None


def _instruction(prompt: tuple[Message, ...]) -> str:
    return "\n\n".join(message.text for message in prompt)


def task_toml(task: ContainerTask) -> str:
    """A task.toml that Harbor reads to the configuration from which `task` was read."""
    table = tables.TaskTable(
        schema_version=task.schema_version or tables.TaskTable().schema_version,
        source=task.origin,
        multi_step_reward_strategy=task.interaction.total if isinstance(task.interaction, Steps) else None,
        artifacts=[_artifact(item) for item in task.tests.artifacts],
        task=_package(task),
        metadata=dict(task.metadata),
        agent=_agent(task.limits, task.container.user, task.container.agent_network),
        verifier=_verifier(task.tests, task.limits),
        environment=_environment(task.container, task.servers, task.limits.build),
        solution=tables.SolutionTable(env=_solution_env(task)),
        steps=[_step(step) for step in _steps(task)] or None,
    )
    times = (datetime.datetime, datetime.date, datetime.time)
    return tomli_w.dumps(msgspec.to_builtins(table, builtin_types=times), multiline_strings=False)


def _step(step: Step) -> tables.StepTable:
    return tables.StepTable(
        name=step.name,
        agent=_agent(step.limits, step.user, step.network),
        verifier=_verifier(step.tests, step.limits),
        min_reward=dict(step.gate) if isinstance(step.gate, Mapping) else step.gate,
        healthcheck=_healthcheck(step.healthcheck),
        artifacts=[_artifact(item) for item in step.tests.artifacts],
    )


def _solution_env(task: ContainerTask) -> dict[str, str]:
    attempts = [task.reference, *(step.reference for step in _steps(task))]
    return next((dict(attempt.env) for attempt in attempts if attempt), {})


def _agent(limits: Limits, user: str | int | None, network: NetworkPolicy | None) -> tables.AgentTable:
    return tables.AgentTable(timeout_sec=limits.agent, user=user, **_network(network))


def _package(task: ContainerTask) -> tables.PackageTable | None:
    package = task.package
    if package is None:
        return None
    return tables.PackageTable(
        name=package.name,
        version=package.version,
        description=package.description,
        authors=[_author(author) for author in package.authors],
        keywords=list(package.keywords),
    )


def _author(author: Author) -> tables.AuthorTable:
    return tables.AuthorTable(name=author.name, email=author.email)


def _network(policy: NetworkPolicy | None) -> dict[str, Any]:
    if policy is None:
        return {}
    return {"network_mode": policy.mode, "allowed_hosts": None if policy.hosts is None else list(policy.hosts)}


def _environment(container: Container, servers: tuple[Server, ...], build: float | None) -> tables.EnvironmentTable:
    table = tables.EnvironmentTable(
        docker_image=container.image,
        os=container.os,
        cpus=container.cpus,
        memory_mb=container.memory_mb,
        storage_mb=container.storage_mb,
        gpus=container.gpus,
        gpu_types=None if container.gpu_types is None else list(container.gpu_types),
        tpu=None if container.tpu is None else tables.TpuTable(**msgspec.structs.asdict(container.tpu)),
        mcp_servers=[_server(server) for server in servers],
        env=dict(container.env),
        skills_dir=container.skills,
        healthcheck=_healthcheck(container.healthcheck),
        workdir=container.workdir,
        **_network(container.network),
    )
    if build is not None:
        table.build_timeout_sec = build
    return table


def _server(server: Server) -> tables.McpServerTable:
    return tables.McpServerTable(
        name=server.name,
        transport=server.transport,
        url=server.url,
        command=server.command,
        args=list(server.args),
        headers=dict(server.headers),
    )


def _healthcheck(check: Healthcheck | None) -> tables.HealthcheckTable | None:
    if check is None:
        return None
    return tables.HealthcheckTable(
        command=check.command,
        interval_sec=check.interval,
        timeout_sec=check.timeout,
        start_period_sec=check.start_period,
        start_interval_sec=check.start_interval,
        retries=check.retries,
    )


def _verifier(tests: Tests, limits: Limits) -> tables.VerifierTable:
    table = tables.VerifierTable(
        env=dict(tests.env),
        user=tests.user,
        environment_mode=None if tests.separate is None else ("separate" if tests.separate else "shared"),
        environment=None
        if tests.container is None
        else _environment(tests.container, tests.container_servers, tests.container_build_timeout),
        collect=[_collect(item) for item in tests.collect],
        **_network(tests.network),
    )
    if limits.tests is not None:
        table.timeout_sec = limits.tests
    return table


def _collect(item: Collect) -> tables.CollectTable:
    return tables.CollectTable(command=item.command, service=item.service, timeout_sec=item.timeout, user=item.user)


def _artifact(item: str | Artifact) -> str | tables.ArtifactTable:
    if isinstance(item, str):
        return item
    return tables.ArtifactTable(
        source=item.source, destination=item.destination, exclude=list(item.exclude), service=item.service
    )


def _registry(taskset: Taskset, tasks: list[Written], *, sharded: bool) -> str:
    """Paths are relative to where `harbor run` is called, or to the repository that `--repo` names."""
    dataset = {
        "name": taskset.name.rpartition("/")[2],
        "version": taskset.version or HEAD,
        "description": taskset.description,
        "tasks": [{"name": task.id, "path": task_path(task.id, sharded=sharded)} for task in tasks],
    }
    return registry.encode([dataset])


def _dataset(taskset: Taskset, tasks: list[Written]) -> str:
    about: dict[str, Any] = {"name": taskset.name, "version": taskset.version, "description": taskset.description}
    about["authors"] = [msgspec.to_builtins(_author(author)) for author in taskset.authors]
    about["keywords"] = list(taskset.keywords)
    listed = [{"name": task.package, "digest": task.digest} for task in tasks if task.package]
    return tomli_w.dumps({"dataset": {key: value for key, value in about.items() if value}, "tasks": listed})
