"""One Harbor task folder: what this package needs of it, or an error that says what to change.

task.toml  instruction.md  environment/[Dockerfile]  tests/test.sh  [solution/solve.sh]
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from .task_toml import Phase, TaskToml

_CANARY = re.compile(r"^(<!--.*canary.*-->|#.*canary.*)$", re.IGNORECASE)
_IMAGE = re.compile(r"[A-Za-z0-9]\S*")

_HARBOR = "run this task with Harbor"
_BUILT_IN = "run this task with Harbor, or with verifiers' built-in `harbor` taskset if it names a docker_image"


class FolderError(ValueError):
    """A task folder that is broken, or that asks for something this package does not do."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A task folder that can be run."""

    path: Path
    config: TaskToml
    instruction: str

    @property
    def name(self) -> str:
        """The task's id: the name of its folder."""
        return self.path.name

    @property
    def environment(self) -> Path:
        """The build context, or the files that belong in the workdir of a prebuilt image. Need not exist."""
        return self.path / "environment"

    @property
    def has_dockerfile(self) -> bool:
        """Whether the image can be built from the folder."""
        return (self.environment / "Dockerfile").is_file()

    @property
    def has_solution(self) -> bool:
        """Whether there is a reference solution to play."""
        return (self.path / "solution" / "solve.sh").is_file()


def read(path: Path) -> Folder:
    """Read the task folder `path`.

    Raises:
        FolderError: naming the file, the field, its value and what to do.
        OSError: a file cannot be read.
    """
    if not (path / "task.toml").is_file():
        raise FolderError("task.toml is missing; a Harbor task needs one, if only an empty one")
    config = _read_config(path / "task.toml")
    problem = next(_unsupported(path, config), None) or next(_missing(path, config), None)
    if problem is not None:
        raise FolderError(problem)
    for folder in ("tests", "solution"):
        _check_tree(path, path / folder)
    return Folder(path, config, _without_canary(_text(path / "instruction.md")))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FolderError(f"{path.name} is not UTF-8 ({error}); save it as UTF-8") from None


def _read_config(path: Path) -> TaskToml:
    try:
        return TaskToml.model_validate(tomllib.loads(_text(path)))
    except tomllib.TOMLDecodeError as error:
        raise FolderError(f"task.toml is not TOML: {error}") from None
    except ValidationError as error:
        raise FolderError(f"task.toml: {'; '.join(map(_fault, error.errors(include_url=False)))}") from None


def _fault(fault: ErrorDetails) -> str:
    field, value, message = ".".join(map(str, fault["loc"])), fault["input"], fault["msg"].removeprefix("Value error, ")
    # A whole table is not shown: it may hold what is no business of a log.
    return f"{field}: {message}" if isinstance(value, dict | list) else f"{field} = {value!r}: {message}"


def _unsupported(path: Path, config: TaskToml) -> Iterator[str]:
    """Yield a sentence for everything that would make the task another task here than it is in Harbor."""
    environment, verifier = config.environment, config.verifier
    if config.steps:
        yield f"task.toml: [[steps]] (a task of several steps) is not supported; {_HARBOR}"
    if environment.os.lower() != "linux":
        yield f"task.toml: environment.os = {environment.os!r} is not supported, only linux; {_HARBOR}"
    if environment.tpu is not None:
        yield f"task.toml: environment.tpu = {environment.tpu!r} is not supported; {_HARBOR}"
    if (path / "trajectory.json").exists():
        yield f"trajectory.json (a conversation to continue) is not supported; {_HARBOR}"
    if (path / "environment" / "docker-compose.yaml").exists():
        yield f"environment/docker-compose.yaml is not supported; {_BUILT_IN}"
    if verifier.environment_mode == "separate" or verifier.environment is not None:
        yield f"task.toml: a separate verifier (environment_mode, [verifier.environment]) is not supported; {_BUILT_IN}"
    if verifier.collect:
        yield f"task.toml: [[verifier.collect]] is not supported; {_BUILT_IN}"
    if environment.gpus:
        yield f"task.toml: environment.gpus = {environment.gpus} is not supported; {_BUILT_IN}"
    for field, value in (
        ("mcp_servers", environment.mcp_servers),
        ("skills_dir", environment.skills_dir),
        ("healthcheck", environment.healthcheck),
    ):
        if value:
            yield f"task.toml: environment.{field} is not supported; {_BUILT_IN}"
    # As in Harbor, the older allow_internet only counts where network_mode is silent.
    if environment.allow_internet is False and environment.network_mode is None:
        yield f"task.toml: environment.allow_internet = false is not supported; {_BUILT_IN}"
    phases: tuple[tuple[str, Phase], ...] = (
        ("environment", environment),
        ("agent", config.agent),
        ("verifier", verifier),
    )
    for table, phase in phases:
        if phase.network_mode not in (None, "public") or phase.allowed_hosts:
            yield (
                f"task.toml: {table}.network_mode = {phase.network_mode!r}, allowed_hosts = {phase.allowed_hosts!r}: "
                f"only the public network is supported; {_BUILT_IN}"
            )


def _missing(path: Path, config: TaskToml) -> Iterator[str]:
    """Yield a sentence for everything that the task needs and does not have."""
    environment = config.environment
    if not (path / "instruction.md").is_file():
        yield "instruction.md is missing; write what the agent is asked to do into it"
    if not (path / "tests" / "test.sh").is_file():
        yield "tests/test.sh is missing; write the script that leaves the reward in /logs/verifier"
    if not environment.docker_image and not (path / "environment" / "Dockerfile").is_file():
        yield "there is neither environment/Dockerfile nor environment.docker_image in task.toml; add one of them"
    if environment.docker_image and not _IMAGE.fullmatch(environment.docker_image):
        yield f"task.toml: environment.docker_image = {environment.docker_image!r} is not the name of an image"
    if environment.workdir and not environment.workdir.startswith("/"):
        yield f"task.toml: environment.workdir = {environment.workdir!r} must be an absolute path"


def _check_tree(task: Path, folder: Path) -> None:
    """Raise FolderError for what Harbor would not upload as it stands below tests/ or solution/."""
    root = task.resolve()
    for entry in (folder, *folder.rglob("*")):
        name = entry.relative_to(task).as_posix()
        if entry.name == ".harborignore":
            raise FolderError(f"{name} is not supported: remove it, and the files it hides; or {_HARBOR}")
        if not entry.resolve().is_relative_to(root):
            raise FolderError(f"{name} is a link that leaves the task folder; put the file itself there")


def _without_canary(text: str) -> str:
    """`text` without its leading canary lines and then its leading blank lines (harbor models/task/task.py)."""
    lines = text.split("\n")
    start = 0
    while start < len(lines) and _CANARY.match(lines[start].strip()):
        start += 1
    while start < len(lines) and not lines[start].strip():
        start += 1
    return "\n".join(lines[start:])
