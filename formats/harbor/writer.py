"""The taskset written as Harbor: `tasks/<id>/`, `registry.json` and `dataset.toml`.

A task that came from Harbor is carried byte for byte; else its folder is made from its parts. Other layouts that store
a containerised task on disk call `write_folder` too.
"""

import datetime
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import tomli_w

from envconvert.formats import losses
from envconvert.formats.files import Target, Tree, UnsafeTreeError, walk
from envconvert.formats.harbor import tables
from envconvert.formats.harbor.digest import package_digest
from envconvert.formats.harbor.reader import NAME
from envconvert.formats.losses import Ledger, Loss
from envconvert.formats.taskset import (
    Artifact,
    Attempt,
    Author,
    Collect,
    Container,
    Healthcheck,
    NetworkPolicy,
    Script,
    Server,
    Steps,
    Task,
    Taskset,
    mark,
)


def write(taskset: Taskset, target: Target, ledger: Ledger) -> None:
    """Write `taskset` to `target`."""
    listed: list[dict[str, str]] = []
    registered: list[dict[str, str]] = []
    for task in taskset.tasks(ledger):
        if not ledger.admit(task.id, list(_losses(task, taskset.reward))):
            continue
        path = f"tasks/{task.id}"
        if not write_folder(task, target, path, ledger):
            continue
        registered.append({"name": task.id, "path": path})
        if task.package is not None:
            try:
                digest = package_digest(walk(target.root / path))
            except (OSError, ValueError) as error:
                reason = (
                    error.strerror if isinstance(error, OSError) else str(error)
                )  # no path: it is that of the stage
                loss = losses.PACKAGE_UNDIGESTED.loss(task=task.id, format=NAME, field="task.name", value=reason)
                ledger.admit(task.id, [loss])
            else:
                listed.append({"name": task.package.name, "digest": digest})
    target.write("registry.json", _registry(taskset, registered))
    target.write("dataset.toml", _dataset(taskset, listed))


def _losses(task: Task, rule: Script) -> Iterator[Loss]:
    if task.package is None:
        yield losses.PACKAGE_UNNAMED.loss(task=task.id, format=NAME, field="task.name")
    if task.reward.key != "reward":
        yield losses.REWARD_KEY.loss(task=task.id, format=NAME, field="reward.key", value=task.reward.key)
    if carried_files(task) is not None:
        return
    if isinstance(task.interaction, Steps):
        count = len(task.interaction.steps)
        yield losses.STEPS_UNSAID.loss(task=task.id, format=NAME, field="interaction", value=count)
    for name, limit in (("build", task.limits.build), ("tests", task.limits.tests)):
        if limit is None:
            yield losses.LIMIT_DEFAULT.loss(task=task.id, format=NAME, field=f"limits.{name}", value=name)


def carried_files(task: Task) -> Tree | None:
    """The Harbor folder that `task` came from, unless a part was changed since."""
    native = task.native.get(NAME)
    return native.files if native is not None and native.mark == mark(task) else None


def write_folder(task: Task, target: Target, path: str, ledger: Ledger) -> bool:
    """Write one task as a Harbor folder at `path`: byte for byte where it came from one, else from its parts.

    False, and nothing written, where a file of the task cannot be read or has changed since the task was read.
    """
    native = task.native.get(NAME)
    try:
        with target.folder(path, source=native.place if native else "") as folder:
            _fill(folder, task)
    except UnsafeTreeError as error:
        return ledger.admit(task.id, [error.kind.loss(task=task.id, format=NAME, field=error.path, **error.values)])
    ledger.written += 1
    return True


def _fill(folder: Target, task: Task) -> None:
    files = carried_files(task)
    if files is not None:
        folder.copy(files)
        return
    folder.write("task.toml", task_toml(task))
    folder.write("instruction.md", "\n\n".join(message.text for message in task.prompt))
    context = task.container.build.context if task.container.build else task.container.files
    for tree, name in ((context, "environment"), (task.tests.files, "tests")):
        if tree is not None:
            folder.copy(tree, name)
    if task.reference is not None:
        folder.copy(task.reference.files, "solution")


def task_toml(task: Task) -> str:
    """A task.toml that Harbor reads to the configuration from which `task` was read."""
    table = tables.TaskTable(
        schema_version=task.schema_version or tables.TaskTable().schema_version,
        source=task.origin,
        artifacts=[_artifact(item) for item in task.tests.artifacts],
        task=_package(task),
        metadata=dict(task.metadata),
        agent=tables.AgentTable(
            timeout_sec=task.limits.agent, user=task.container.user, **_network(task.container.agent_network)
        ),
        verifier=_verifier(task),
        environment=_environment(task.container, task.servers, task.limits.build),
        solution=tables.SolutionTable(env=_env(task.reference)),
    )
    times = (datetime.datetime, datetime.date, datetime.time)
    return tomli_w.dumps(msgspec.to_builtins(table, builtin_types=times), multiline_strings=False)


def _env(attempt: Attempt | None) -> dict[str, str]:
    return dict(attempt.env) if attempt else {}


def _package(task: Task) -> tables.PackageTable | None:
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


def _verifier(task: Task) -> tables.VerifierTable:
    tests = task.tests
    table = tables.VerifierTable(
        env=dict(tests.env),
        user=tests.user,
        environment_mode=None if tests.separate is None else ("separate" if tests.separate else "shared"),
        environment=None
        if tests.container is None
        else _environment(tests.container, (), tests.container_build_timeout),
        collect=[_collect(item) for item in tests.collect],
        **_network(tests.network),
    )
    if task.limits.tests is not None:
        table.timeout_sec = task.limits.tests
    return table


def _collect(item: Collect) -> tables.CollectTable:
    return tables.CollectTable(command=item.command, service=item.service, timeout_sec=item.timeout, user=item.user)


def _artifact(item: str | Artifact) -> str | tables.ArtifactTable:
    if isinstance(item, str):
        return item
    return tables.ArtifactTable(
        source=item.source, destination=item.destination, exclude=list(item.exclude), service=item.service
    )


def _registry(taskset: Taskset, tasks: list[dict[str, str]]) -> str:
    """Paths are relative to where `harbor run` is called, or to the repository that `--repo` names."""
    dataset = {
        "name": taskset.name.rpartition("/")[2],
        "version": taskset.version or "head",
        "description": taskset.description,
        "tasks": tasks,
    }
    return json.dumps([dataset], ensure_ascii=False, indent=2) + "\n"


def _dataset(taskset: Taskset, tasks: list[dict[str, str]]) -> str:
    about: dict[str, Any] = {"name": taskset.name, "version": taskset.version, "description": taskset.description}
    about["authors"] = [msgspec.to_builtins(_author(author)) for author in taskset.authors]
    about["keywords"] = list(taskset.keywords)
    return tomli_w.dumps({"dataset": {key: value for key, value in about.items() if value}, "tasks": tasks})
