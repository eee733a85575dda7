"""One Harbor task folder: what is needed to run it, or an error that says what to change.

task.toml  instruction.md  environment/[Dockerfile|docker-compose.yaml]  tests/test.sh  [solution/solve.sh]
with steps: steps/<name>/{instruction.md,[workdir/],[tests/],[solution/]}
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from . import ignores
from .task_toml import EVERY_HOST, Allowed, Artifact, Collect, Environment, Healthcheck, Step, TaskToml, Verifier

_CANARY = re.compile(r"^(<!--.*canary.*-->|#.*canary.*)$", re.IGNORECASE)
_IMAGE = re.compile(r"[A-Za-z0-9]\S*")

HARBOR = "run this task with Harbor"


class FolderError(ValueError):
    """A task folder that is broken, or that asks for what cannot be done."""


@dataclass(frozen=True, slots=True)
class Definition:
    """What a container is made from: a folder with a Dockerfile, a compose file or files to upload, and its table."""

    folder: Path
    environment: Environment
    bundled: bool = False
    """Whether the image holds the tests, so that `folder` is only its build context."""

    @property
    def docker_image(self) -> str | None:
        """The image that is used where it is present or can be pulled."""
        return self.environment.docker_image or None

    @property
    def has_dockerfile(self) -> bool:
        """Whether the image can be built."""
        return (self.folder / "Dockerfile").is_file()

    @property
    def has_compose(self) -> bool:
        """Whether the container is the service `main` of a compose file."""
        return (self.folder / "docker-compose.yaml").is_file()


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the agent and the tests that follow it: a whole task without steps, or one of its steps.

    What a step leaves unsaid is the task's. Times are in seconds.
    """

    name: str
    """The step's; empty for a task without steps."""
    instruction: str
    seconds: float | None
    """How long the agent has; None: no limit."""
    user: str | int | None
    """Who the agent runs as; None: the image's user."""
    allowed: Allowed
    """The hosts that the agent may reach."""
    workdir: Path | None
    """Files that are put into the working folder before the turn; setup.sh among them is run."""
    healthcheck: Healthcheck | None
    solution: Path | None
    """The folder with solve.sh; None: there is no reference solution."""
    collect: tuple[Collect, ...]
    artifacts: tuple[Artifact, ...]
    tests: tuple[Path, ...]
    """Folders that are laid over one another in /tests; empty where the image of the tests holds them."""
    own: Definition | None
    """The tests' own container; None: they run where the agent did."""
    tests_seconds: float
    tests_user: str | int | None
    tests_env: dict[str, str]
    tests_allowed: Allowed
    minimum: dict[str, float]
    """The rewards, by key, below which no further step is taken."""


@dataclass(frozen=True)
class Folder:
    """A task folder that can be run."""

    path: Path
    config: TaskToml

    @property
    def name(self) -> str:
        """The task's id: the name of its folder."""
        return self.path.name

    @property
    def definition(self) -> Definition:
        """The agent's container."""
        return Definition(self.path / "environment", self.config.environment)

    @property
    def has_steps(self) -> bool:
        """Whether the agent takes several turns."""
        return bool(self.config.steps)

    @property
    def trajectory(self) -> Path | None:
        """The conversation that the agent goes on from, if there is one; of several steps it is the first's."""
        path = self._place(self.config.steps[0] if self.config.steps else None) / "trajectory.json"
        return path if path.is_file() else None

    @cached_property
    def turns(self) -> tuple[Turn, ...]:
        """What the agent is asked, in order.

        Raises:
            FolderError: an instruction cannot be read.
        """
        if not self.config.steps:
            return (self._turn(None),)
        return tuple(self._turn(step) for step in self.config.steps)

    def _place(self, step: Step | None) -> Path:
        return self.path if step is None else self.path / "steps" / step.name

    def _turn(self, step: Step | None) -> Turn:
        config, place = self.config, self._place(step)
        agent, verifier = config.agent, config.verifier
        said = step or Step(name="")
        own = self._own_container(step)
        baseline = config.environment.baseline
        tests_baseline = own.environment.baseline if own else baseline
        return Turn(
            name=said.name,
            instruction=_without_canary(_text(self.path, place / "instruction.md")),
            seconds=agent.timeout_sec if said.agent.timeout_sec is None else said.agent.timeout_sec,
            user=agent.user if said.agent.user is None else said.agent.user,
            allowed=_first(said.agent.allowed, agent.allowed, baseline),
            workdir=_folder(place / "workdir") if step else None,
            healthcheck=said.healthcheck,
            solution=self._solution(place),
            collect=(*verifier.collect, *said.verifier.collect),
            artifacts=(*config.artifacts, *said.artifacts),
            tests=() if own and own.bundled else tuple(self._tests(place)),
            own=own,
            # A step never has the task's limit for its tests (harbor trial/trial.py): the field has a default.
            tests_seconds=said.verifier.timeout_sec if step else verifier.timeout_sec,
            tests_user=verifier.user if said.verifier.user is None else said.verifier.user,
            tests_env={**verifier.env, **said.verifier.env},
            tests_allowed=_first(said.verifier.allowed, verifier.allowed, tests_baseline),
            minimum=_minimum(said.min_reward),
        )

    def _tests(self, place: Path) -> Iterator[Path]:
        for folder in dict.fromkeys((self.path / "tests", place / "tests")):
            if folder.is_dir():
                yield folder

    def _solution(self, place: Path) -> Path | None:
        for folder in (place / "solution", self.path / "solution"):
            if folder.is_dir():
                return folder if (folder / "solve.sh").is_file() else None
        return None

    def _own_container(self, step: Step | None) -> Definition | None:
        """Where the tests run if not where the agent did (harbor models/task/verifier_mode.py)."""
        verifiers = [self.config.verifier]
        folders = [self.path / "tests"]
        if step is not None:
            verifiers.insert(0, step.verifier)
            folders.insert(0, self._place(step) / "tests")
        if not next((v.separate for v in verifiers if v.separate is not None), False):
            return None
        agent = self.config.environment
        table = next((v.environment for v in verifiers if v.environment is not None), agent)
        # Harbor gives every container of a trial the time of the agent's.
        table = table.model_copy(update={"build_timeout_sec": agent.build_timeout_sec})
        for verifier, folder in zip(verifiers, folders, strict=True):
            if verifier.environment is not None and verifier.environment.docker_image:
                image = verifier.environment.docker_image
                return Definition(folder, table.model_copy(update={"docker_image": image}), bundled=True)
            definition = Definition(folder, table.model_copy(update={"docker_image": None}), bundled=True)
            if definition.has_dockerfile or definition.has_compose:
                return definition
        return Definition(
            self.path / "environment", table.model_copy(update={"docker_image": agent.docker_image}), bundled=False
        )


def _first(*said: Allowed | None) -> Allowed:
    return next((allowed for allowed in said if allowed is not None), EVERY_HOST)


def _folder(path: Path) -> Path | None:
    return path if path.is_dir() else None


def _minimum(said: float | dict[str, float] | None) -> dict[str, float]:
    if said is None:
        return {}
    return said if isinstance(said, dict) else {"reward": said}


def read(path: Path) -> Folder:
    """Read the task folder `path`.

    Raises:
        FolderError: naming the file, the field, its value and what to do.
        OSError: a file cannot be read.
    """
    if not (path / "task.toml").is_file():
        raise FolderError("task.toml is missing; a Harbor task needs one, if only an empty one")
    folder = Folder(path, _read_config(path))
    problem = next(_missing(folder), None) or next(_foreign(folder), None)
    if problem is not None:
        raise FolderError(problem)
    for turn in folder.turns:
        for place in (*turn.tests, turn.solution, turn.workdir):
            if place is not None:
                _check_tree(path, place)
    return folder


def _text(task: Path, path: Path) -> str:
    name = path.relative_to(task).as_posix()
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FolderError(f"{name} is not UTF-8 ({error}); save it as UTF-8") from None


def _read_config(path: Path) -> TaskToml:
    try:
        return TaskToml.model_validate(tomllib.loads(_text(path, path / "task.toml")))
    except tomllib.TOMLDecodeError as error:
        raise FolderError(f"task.toml is not TOML: {error}") from None
    except ValidationError as error:
        raise FolderError(f"task.toml: {'; '.join(map(_fault, error.errors(include_url=False)))}") from None


def _fault(fault: ErrorDetails) -> str:
    field, value, message = ".".join(map(str, fault["loc"])), fault["input"], fault["msg"].removeprefix("Value error, ")
    # A whole table is not shown: it may hold what is no business of a log.
    return f"{field}: {message}" if isinstance(value, dict | list) else f"{field} = {value!r}: {message}"


def _foreign(folder: Folder) -> Iterator[str]:
    """Yield a sentence for every container that is none of Linux."""
    tables = [("environment", folder.config.environment)]
    tables += [
        (path, verifier.environment) for path, verifier in _verifiers(folder) if verifier.environment is not None
    ]
    for path, table in tables:
        if table.os.lower() != "linux":
            yield f"task.toml: {path}.os = {table.os!r} is not supported, only linux; {HARBOR}"
        if table.tpu is not None:
            yield f"task.toml: {path}.tpu = {table.tpu!r} is not supported; {HARBOR}"


def _verifiers(folder: Folder) -> Iterator[tuple[str, Verifier]]:
    yield "verifier.environment", folder.config.verifier
    for step in folder.config.steps:
        yield f"step {step.name!r}: verifier.environment", step.verifier


def _missing(folder: Folder) -> Iterator[str]:
    """Yield a sentence for everything that the task needs and does not have."""
    path, environment = folder.path, folder.config.environment
    steps = folder.config.steps
    for place in [path / "steps" / step.name for step in steps] or [path]:
        name = (place / "instruction.md").relative_to(path)
        if not (place / "instruction.md").is_file():
            yield f"{name} is missing; write what the agent is asked to do into it"
    for turn in folder.turns:
        bundled = turn.own is not None and turn.own.bundled
        if not bundled and not any((tests / "test.sh").is_file() for tests in turn.tests):
            where = f"steps/{turn.name}/tests" if turn.name else "tests"
            yield f"{where}/test.sh is missing; write the script that leaves the reward in /logs/verifier"
    definition = folder.definition
    if not definition.docker_image and not definition.has_dockerfile and not definition.has_compose:
        yield "there is neither environment/Dockerfile nor environment.docker_image in task.toml; add one of them"
    if environment.docker_image and not _IMAGE.fullmatch(environment.docker_image):
        yield f"task.toml: environment.docker_image = {environment.docker_image!r} is not the name of an image"
    if environment.workdir and not environment.workdir.startswith("/"):
        yield f"task.toml: environment.workdir = {environment.workdir!r} must be an absolute path"


def _check_tree(task: Path, folder: Path) -> None:
    """Raise FolderError for what Harbor would not upload from `folder`."""
    root = task.resolve()
    excluded = ignores.excluder(task, folder)
    for entry in (folder, *folder.rglob("*")):
        name = entry.relative_to(task).as_posix()
        if not entry.resolve().is_relative_to(root):
            raise FolderError(f"{name} is a link that leaves the task folder; put the file itself there")
        if entry.name in ("test.sh", "solve.sh") and entry.parent == folder and excluded(entry):
            raise FolderError(f"{name} is what has to run, and .harborignore keeps it out; remove the rule")


def _without_canary(text: str) -> str:
    """`text` without its leading canary lines and then its leading blank lines (harbor models/task/task.py)."""
    lines = text.split("\n")
    start = 0
    while start < len(lines) and _CANARY.match(lines[start].strip()):
        start += 1
    while start < len(lines) and not lines[start].strip():
        start += 1
    return "\n".join(lines[start:])
