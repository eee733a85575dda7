"""Harbor task folders, read into the taskset.

Reads a task folder, a folder of task folders (flat or in groups), or a repository with `tasks/`. A task's id is its
path below the scanned folder with `/` as `--`. A bad task is one refused task.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import tomli

from envconvert.formats import losses
from envconvert.formats.files import Tree, UnsafeTreeError, folded, walk
from envconvert.formats.harbor import config
from envconvert.formats.harbor.config import ConfigError
from envconvert.formats.harbor.digest import ignore_files
from envconvert.formats.harbor.finding import FoundTask, find, holds_task
from envconvert.formats.harbor.tables import (
    AgentTable,
    ArtifactTable,
    AuthorTable,
    EnvironmentTable,
    McpServerTable,
    TaskTable,
    VerifierTable,
)
from envconvert.formats.losses import Kind, Ledger, Loss, RefusedError, printable
from envconvert.formats.taskset import (
    Act,
    Artifact,
    Attempt,
    Author,
    Build,
    Collect,
    Container,
    Healthcheck,
    Limits,
    Message,
    Native,
    Needs,
    NetworkPolicy,
    Package,
    Script,
    Select,
    Server,
    Step,
    Steps,
    Task,
    Taskset,
    TasksetSource,
    Tests,
    Tpu,
    every,
    mark,
)

NAME = "harbor"
_ID_BYTES = 200  # leaves room for the suffixes that frameworks add to a folder name


def detect(source: Path) -> bool:
    """Whether there is a task folder at or below `source`."""
    return holds_task(source)


def read(source: Path, *, name: str | None, reward_key: str | None, select: Select = every) -> Taskset:
    """The taskset at `source`; its tasks are read when they are asked for.

    `name` is ORG/NAME, else made from the folder's; `reward_key` is the trained key, else `reward`; `select` chooses
    among the ids.
    """
    found = find(source)
    chosen = set(select([item.id for item in found]))
    found = [item for item in found if item.id in chosen]
    about, about_losses = _dataset(source)
    reward = Script(key=reward_key or Script().key)

    def tasks(ledger: Ledger) -> Iterator[Task]:
        ledger.admit("", about_losses)
        seen: dict[str, str] = {}
        for item in found:
            ledger.read += 1
            notes: list[Loss] = []
            try:
                _check_id(item, seen)
                task = read_task(item, reward, notes)
            except RefusedError as refused:
                ledger.admit(item.id, [*notes, refused.loss])
                continue
            if ledger.admit(item.id, notes):
                yield task

    return Taskset(
        name=name or local_name(source),
        version=about.version,
        description=about.description,
        authors=tuple(Author(name=author.name, email=author.email) for author in about.authors),
        keywords=tuple(about.keywords),
        source=TasksetSource(format=NAME, uri=printable(source.name)),
        reward=reward,
        ids=tuple(item.id for item in found),
        tasks=tasks,
    )


def local_name(source: Path) -> str:
    """`local/` and the folder's name, with what Harbor allows in a dataset's name."""
    return "local/" + (re.sub(r"[^A-Za-z0-9._-]+|\.\.+", "-", source.name).strip("-._") or "tasks")


class DatasetTable(msgspec.Struct, kw_only=True):
    """[dataset] of dataset.toml, as far as a taskset holds it."""

    version: str | None = None
    description: str = ""
    authors: list[AuthorTable] = []
    keywords: list[str] = []


def _dataset(source: Path) -> tuple[DatasetTable, list[Loss]]:
    """[dataset] of the dataset.toml beside the tasks, and why it is left aside where it cannot be read."""
    path = source / "dataset.toml"
    if not path.is_file():
        return DatasetTable(), []
    try:
        return msgspec.convert(tomli.loads(path.read_text("utf-8")).get("dataset", {}), DatasetTable), []
    except (OSError, ValueError, AttributeError, msgspec.ValidationError) as error:
        return DatasetTable(), [
            losses.DATASET_UNREADABLE.loss(task="", format=NAME, field="dataset.toml", value=str(error))
        ]


def _check_id(item: FoundTask, seen: dict[str, str]) -> None:
    if reason := config.why_not_portable(item.id, _ID_BYTES):
        raise RefusedError(losses.ID_INVALID.loss(task=item.id, format=NAME, field="id", value=item.id, reason=reason))
    other = seen.setdefault(folded(item.id), item.place)
    if other != item.place:
        raise RefusedError(losses.ID_CLASH.loss(task=item.id, format=NAME, field="id", value=item.id, other=other))


def read_task(item: FoundTask, reward: Script, notes: list[Loss]) -> Task:
    """Read one folder; what is noteworthy about it is appended to `notes`. Raises `RefusedError`."""
    try:
        tree = walk(item.path)
        if item.path.is_symlink() and not item.path.resolve().is_relative_to(item.path.parent.resolve()):
            raise UnsafeTreeError(losses.LINK_OUTSIDE, ".", value=os.readlink(item.path))
        if not tree.holds("task.toml", "file", "link"):
            raise ConfigError(losses.CONFIG_MISSING, "task.toml")
        found = config.read(_content(tree, "task.toml"))
        notes += _config_notes(item.id, found)
        task = _task(item.id, tree, found.table, reward, notes)
    except UnsafeTreeError as error:
        raise RefusedError(error.kind.loss(task=item.id, format=NAME, field=error.path, **error.values)) from None
    except ConfigError as error:
        raise RefusedError(_config_loss(error.kind, item.id, error.field, **error.values)) from None
    except OSError as error:
        place = os.path.relpath(error.filename or item.path, item.path)
        reason = error.strerror or type(error).__name__
        raise RefusedError(losses.UNREADABLE.loss(task=item.id, format=NAME, field=place, value=reason)) from None
    return msgspec.structs.replace(task, native={NAME: Native(files=tree, place=item.place, mark=mark(task))})


def _content(tree: Tree, path: str) -> bytes:
    return (tree.root / path).read_bytes()


def _config_loss(kind: Kind, task: str, field: str, **values: object) -> Loss:
    """A loss at a key of task.toml, whose message names the file; `field` may be a file of its own as well."""
    loss = kind.loss(task=task, format=NAME, field=field, **values)
    if field.endswith((".toml", ".md")) or field in _PLACES:
        return loss
    return msgspec.structs.replace(loss, message=f"in task.toml, {loss.message}")


_PLACES = ("environment", "tests")


def _config_notes(task: str, found: config.Config) -> Iterator[Loss]:
    for field, value in found.unknown.items():
        yield _config_loss(losses.KEY_UNKNOWN, task, field, value=value)
    for field, value in found.ignored_sizes.items():
        yield _config_loss(losses.SIZE_INTEGER, task, field, value=value, key=field.rpartition(".")[2])
    table = found.table
    if table.multi_step_reward_strategy is not None and not table.steps:
        field = "multi_step_reward_strategy"
        yield _config_loss(losses.STRATEGY_UNUSED, task, field, value=table.multi_step_reward_strategy)
    for path, env in _variables(table).items():
        for key, value in env.items():
            if "${" in value and not _TEMPLATE.fullmatch(value):
                yield _config_loss(losses.TEMPLATE_LITERAL, task, f"{path}.{key}", value=value)


_TEMPLATE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}")  # harbor/utils/env.py


def _variables(table: TaskTable) -> dict[str, dict[str, str]]:
    return {
        "environment.env": table.environment.env,
        "verifier.env": table.verifier.env,
        "solution.env": table.solution.env,
    }


def _task(id: str, tree: Tree, table: TaskTable, reward: Script, notes: list[Loss]) -> Task:
    prompt: tuple[Message, ...] = ()
    interaction: Act | Steps = Act(resumes="trajectory.json" if tree.holds("trajectory.json") else None)
    if table.steps:
        turns = tuple(
            Step(name=step.name, prompt=_prompt(id, tree, f"steps/{step.name}/instruction.md", notes))
            for step in table.steps
        )
        interaction = Steps(steps=turns, total=table.multi_step_reward_strategy or "mean")
    else:
        prompt = _prompt(id, tree, "instruction.md", notes)
    container = _container(table.environment, table.agent, tree.below("environment"))
    if container.image is None and container.build is None:
        raise ConfigError(losses.ENVIRONMENT_MISSING, "environment")
    tests = _tests(table, tree)
    reference = _reference(table, tree)
    notes += _script_notes(id, tests, reference, table)
    return Task(
        id=id,
        schema_version=table.schema_version,
        origin=table.source,
        package=_package(table),
        prompt=prompt,
        interaction=interaction,
        container=container,
        servers=tuple(_server(server) for server in table.environment.mcp_servers),
        tests=tests,
        reward=reward,
        reference=reference,
        limits=Limits(
            build=table.environment.build_timeout_sec, agent=table.agent.timeout_sec, tests=table.verifier.timeout_sec
        ),
        needs=Needs(docker=True, gpus=table.environment.gpus or 0, variables=_needed_variables(table)),
        metadata=table.metadata,
    )


_CANARY = re.compile(r"^(<!--.*canary.*-->|#.*canary.*)$", re.IGNORECASE)


def _prompt(id: str, tree: Tree, path: str, notes: list[Loss]) -> tuple[Message, ...]:
    """The instruction as Harbor shows it: without leading canary marks and the blank lines after them."""
    if not tree.holds(path, "file", "link"):
        raise ConfigError(losses.INSTRUCTION_MISSING, path)
    content = _content(tree, path)
    try:
        # universal newlines, as the text mode in which Harbor reads it
        lines = content.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")
    except UnicodeDecodeError as error:
        bad = content[error.start : error.end]
        raise ConfigError(losses.INSTRUCTION_ENCODING, path, value=bad) from None
    start = 0
    while start < len(lines) and _CANARY.match(lines[start].strip()):
        start += 1
    if start:
        notes.append(losses.INSTRUCTION_CANARY.loss(task=id, format=NAME, field=path, value=lines[:start]))
    while start < len(lines) and not lines[start].strip():
        start += 1
    return (Message(role="user", text="\n".join(lines[start:])),)


def _package(table: TaskTable) -> Package | None:
    if table.task is None:
        return None
    return Package(
        name=table.task.name,
        version=table.task.version,
        description=table.task.description,
        authors=tuple(Author(name=author.name, email=author.email) for author in table.task.authors),
        keywords=tuple(table.task.keywords),
    )


def _container(table: EnvironmentTable, agent: AgentTable | None, folder: Tree | None) -> Container:
    """`folder` is the build context: environment/ for the agent's container, tests/ for a verifier's own."""
    build = files = None
    if folder is not None:
        dockerfile = "Dockerfile" if folder.holds("Dockerfile", "file", "link") else None
        compose = "docker-compose.yaml" if folder.holds("docker-compose.yaml", "file", "link") else None
        if dockerfile or compose:
            build = Build(context=folder, dockerfile=dockerfile, compose=compose)
        elif folder.entries:
            files = folder
    return Container(
        image=table.docker_image or None,
        build=build,
        files=files,
        workdir=table.workdir,
        user=agent.user if agent else None,
        env=table.env,
        cpus=table.cpus,
        memory_mb=table.memory_mb,
        storage_mb=table.storage_mb,
        gpus=table.gpus,
        gpu_types=None if table.gpu_types is None else tuple(table.gpu_types),
        tpu=None if table.tpu is None else Tpu(type=table.tpu.type, topology=table.tpu.topology),
        os=table.os,
        network=_network(table) or NetworkPolicy(mode="public"),
        agent_network=_network(agent) if agent else None,
        healthcheck=_healthcheck(table),
        skills=table.skills_dir,
    )


def _network(table: AgentTable | EnvironmentTable | VerifierTable) -> NetworkPolicy | None:
    if table.network_mode is None:
        return None
    return NetworkPolicy(
        mode=table.network_mode, hosts=None if table.allowed_hosts is None else tuple(table.allowed_hosts)
    )


def _healthcheck(table: EnvironmentTable) -> Healthcheck | None:
    check = table.healthcheck
    if check is None:
        return None
    return Healthcheck(
        command=check.command,
        interval=check.interval_sec,
        timeout=check.timeout_sec,
        start_period=check.start_period_sec,
        start_interval=check.start_interval_sec,
        retries=check.retries,
    )


def _server(table: McpServerTable) -> Server:
    return Server(
        name=table.name,
        transport=table.transport,
        url=table.url,
        command=table.command,
        args=tuple(table.args),
        headers=table.headers,
    )


def _tests(table: TaskTable, tree: Tree) -> Tests:
    verifier = table.verifier
    files = tree.below("tests")
    own = verifier.environment
    separate = verifier.environment_mode == "separate" or (verifier.environment_mode is None and own is not None)
    bundled = separate and bool(
        (own and own.docker_image) or (files and (files.holds("Dockerfile") or files.holds("docker-compose.yaml")))
    )
    script = "test.bat" if (own or table.environment).os == "windows" else "test.sh"
    if not table.steps and not bundled and not (files and files.holds(script, "file", "link")):
        raise ConfigError(losses.TESTS_MISSING, "tests", value=f"tests/{script}")
    return Tests(
        files=files,
        command=script,
        env=verifier.env,
        user=verifier.user,
        network=_network(verifier),
        separate=None if verifier.environment_mode is None else separate,
        container=None if own is None else _container(own, None, files),
        container_build_timeout=None if own is None else own.build_timeout_sec,
        artifacts=tuple(_artifact(item) for item in table.artifacts),
        collect=tuple(
            Collect(command=item.command, service=item.service, timeout=item.timeout_sec, user=item.user)
            for item in verifier.collect
        ),
        ignores=tuple(ignore_files(tree)),
    )


def _artifact(item: str | ArtifactTable) -> str | Artifact:
    if isinstance(item, str):
        return item
    return Artifact(source=item.source, destination=item.destination, exclude=tuple(item.exclude), service=item.service)


def _reference(table: TaskTable, tree: Tree) -> Attempt | None:
    files = tree.below("solution")
    script = "solve.bat" if table.environment.os == "windows" else "solve.sh"
    if files is None or not files.holds(script, "file", "link"):
        return None
    return Attempt(files=files, command=script, env=table.solution.env)


def _script_notes(id: str, tests: Tests, reference: Attempt | None, table: TaskTable) -> Iterator[Loss]:
    if reference is None and not table.steps:
        yield losses.REFERENCE_MISSING.loss(task=id, format=NAME, field="solution", value="solution/solve.sh")
    scripts = [("tests", tests.files, tests.command)]
    if reference is not None:
        scripts.append(("solution", reference.files, reference.command))
    for folder, files, script in scripts if table.environment.os == "linux" else ():
        if files is not None and files.holds(script, "file", "link"):
            first = _content(files, script).partition(b"\n")[0]
            if first.endswith(b"\r"):
                shown = first.decode("utf-8", "replace")
                yield losses.SCRIPT_CRLF.loss(task=id, format=NAME, field=f"{folder}/{script}", value=shown)


def _needed_variables(table: TaskTable) -> tuple[str, ...]:
    tables = [*_variables(table).values(), *(step.verifier.env for step in table.steps or ())]
    names = {
        match[1]
        for env in tables
        for value in env.values()
        if (match := _TEMPLATE.fullmatch(value)) and match[2] is None
    }
    for server in table.environment.mcp_servers:  # a header may hold references inside its value
        names |= {name for value in server.headers.values() for name in re.findall(r"\$\{([^}:]+)\}", value)}
    return tuple(sorted(names))
