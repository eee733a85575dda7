"""One Verifiers task for one Harbor task folder."""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from pydantic import BaseModel, Field

from . import boxes, steps, tools, trajectory
from .boxes import MODULE
from .machine import RuntimeMachine
from .runner import container, reference
from .runner.folder import Folder, FolderError, Turn
from .runner.grading import GradingError, designated, grade
from .runner.machine import Box
from .runner.shards import task_folder
from .runner.task_toml import EVERY_HOST, McpServer
from .runner.variables import resolve
from .steps import StepsState
from .supported import read

logger = logging.getLogger(__name__)

_PACKAGE = Path(__file__).parent


class Manifest(BaseModel):
    """The first line of taskset.jsonl: what the package says about the whole taskset."""

    name: str = MODULE
    reward_key: str = "reward"
    left_out: frozenset[str] = frozenset()
    """Tasks that stand in the repository for other frameworks only."""


@cache
def manifest() -> Manifest:
    """Read taskset.jsonl beside this file."""
    with (_PACKAGE / "taskset.jsonl").open(encoding="utf-8") as lines:
        return Manifest.model_validate(json.loads(lines.readline()))


def tasks_root(path: Path | None) -> Path:
    """The folder of the task folders: `path`, else the package's own, else that of the repository around the package.

    A repository for several frameworks has its tasks in one place, two folders above this one.
    """
    own = _PACKAGE / "tasks"
    return path or (own if own.is_dir() else _PACKAGE.parents[1] / "tasks")


class FolderTaskData(vf.TaskData):
    """What a trace records of a task. Everything else is read from its folder when it is needed."""

    folder: str
    """The name of the task's folder, wherever the taskset lies."""
    difficulty: str | None = None
    category: str | None = None
    tags: tuple[str, ...] = ()
    servers: list[McpServer] = Field(default_factory=list)
    """The MCP servers whose tools the agent is offered."""


def task_data(folder: Folder) -> FolderTaskData:
    """The task of a folder as Verifiers records it: no absolute path, no resolved variable."""
    config = folder.config
    environment = config.environment
    first = folder.turns[0]
    earlier = folder.trajectory
    return FolderTaskData(
        id=folder.name,
        name=config.task.name or folder.name,
        description=config.task.description or None,
        prompt=first.instruction if earlier is None else trajectory.messages(earlier, first.instruction),
        image=boxes.image_name(folder.definition),
        workdir=boxes.START,
        agent_user=None if first.user is None else str(first.user),
        # Of a container that is limited in any step, for what is not must be asked of docker when it starts.
        network_allow=list(next((turn.allowed for turn in folder.turns if turn.allowed != EVERY_HOST), EVERY_HOST)),
        # No limit for scoring: verifiers would end it with reward 0 and no error (rollout.py, close). `grade` has one.
        # Nor for the agent where there are steps, each of which has its own: verifiers has one for the whole rollout.
        timeout=vf.TaskTimeout(agent=None if folder.has_steps else first.seconds),
        resources=boxes.resources(environment),
        skills=[{"runtime": environment.skills_dir}] if environment.skills_dir else [],
        folder=folder.name,
        difficulty=_label(config.metadata.get("difficulty")),
        category=_label(config.metadata.get("category")),
        tags=tuple(tag for tag in _list(config.metadata.get("tags")) if isinstance(tag, str)),
        servers=environment.mcp_servers,
    )


def _label(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


class FolderTaskConfig(vf.TaskConfig):
    """What may be chosen for all tasks of a run."""

    reward_key: str | None = None
    """Which number of a reward.json trains, where there are several. None: what taskset.jsonl says."""
    trust_compose: bool = False
    """Run compose files that mount folders of this machine, or ask for its network or devices. Such a file can do
    whatever Docker can; all others run without this."""
    artifacts: Path | None = None
    """A folder for what the tasks declare as artifacts, one folder for each task and rollout in it. None: they are only
    given to the tests."""
    path: Path | None = None
    """Set it on the taskset (`--env.taskset.path`): from there it comes here, where a task can see it."""
    servers: list[McpServer] = Field(default_factory=list)
    """The task's own, not to be chosen: verifiers asks the class of a task for its tools, with this."""
    place: tools.Place = tools.Place()
    """Where those servers are, not to be chosen either: known once the container is set up."""


class FolderTask(vf.Task[FolderTaskData, StepsState, FolderTaskConfig]):
    """A Harbor task: a container, an agent in it, and then tests that leave a reward; or several turns of that."""

    NEEDS_CONTAINER = True

    def __init__(self, data: FolderTaskData, config: FolderTaskConfig | None = None) -> None:
        """Make the task; its MCP servers go where `toolsets` finds them."""
        chosen = config or FolderTaskConfig()
        super().__init__(data, chosen.model_copy(update={"servers": data.servers}))
        self._services: Box | None = None
        self.live: vf.Runtime | None = None
        """The container of the rollout that this task was made for (`in_box`, `alone`), once it is set up."""

    @property
    def key(self) -> str:
        """The name of the folder, which is unique in its taskset and the same on every machine."""
        return str(self.data.folder)

    @classmethod
    def toolsets(cls, config: FolderTaskConfig) -> list[vf.Toolset]:
        """The task's MCP servers."""
        return [*super().toolsets(config), *tools.toolsets(config.servers, config.place)]

    def read_folder(self) -> Folder:
        """The task's folder as it is now; a task that comes out of a trace or another process finds it again here."""
        return read(task_folder(tasks_root(self.config.path), self.data.folder))

    def in_box(self, box: Box | None) -> "FolderTask":
        """This task for one rollout, in `box` if that is not to be verifiers' own container."""
        task: FolderTask = self.with_data() if box is None else self.with_data(image=boxes.runtime_of(box).config.image)
        task._services = box
        return task

    def runtime_env(self) -> dict[str, str]:
        """The task's [environment.env], resolved. Also provides the image.

        For vf-validate this is the only hook before `docker run` (cli/validate.py), so there a build holds up the event
        loop; in vf-eval `FolderEnv` has provided the image before.
        """
        folder = self.read_folder()
        env = resolve("environment.env", folder.config.environment.env)
        boxes.provide(folder.definition, manifest().name, trusted=self.config.trust_compose).result()
        return env

    async def setup(self, runtime: vf.Runtime) -> None:
        """Bring the container into the state in which Harbor hands it to an agent."""
        require_docker(runtime.type)
        folder = self.read_folder()
        self.live = runtime
        self.config: FolderTaskConfig = self.config.model_copy(update={"place": self._place(runtime)})
        # Without services that are up, verifiers' container is none of the task's (vf-validate): `_box` starts them.
        if self._services is not None or not folder.definition.has_compose:
            await self._prepare(runtime, folder)

    def _place(self, runtime: vf.Runtime) -> tools.Place:
        user = self.data.agent_user
        options = [f"--env={name}={value}" for name, value in runtime.env.items()]
        options += [] if user is None else ["--user", str(user)]
        return tools.Place(container=str(runtime.info.id), options=options)

    async def _prepare(self, runtime: vf.Runtime, folder: Folder) -> None:
        try:
            await boxes.prepare(runtime, folder.definition)
        except FolderError as error:
            raise FolderError(f"{folder.name}: {error}") from None
        if (check := folder.config.environment.healthcheck) is not None:
            await container.wait_until_healthy(RuntimeMachine(runtime), check)

    def box(self, runtime: vf.Runtime) -> Box:
        """The agent's container, seen as `runtime`, and the services around it."""
        machine = RuntimeMachine(runtime)
        return Box(machine) if self._services is None else replace(self._services, main=machine)

    @asynccontextmanager
    async def _box(self, runtime: vf.Runtime, folder: Folder) -> AsyncIterator[Box]:
        """The agent's container and its services. In vf-validate, where nobody has, the services are started."""
        if self._services is not None or not folder.definition.has_compose:
            yield self.box(runtime)
        else:
            config = boxes.docker_config(folder.definition)
            trusted = self.config.trust_compose
            async with boxes.services(folder.definition, config, manifest().name, trusted=trusted) as box:
                main = boxes.runtime_of(box)
                main.env = runtime.env
                await self._prepare(main, folder)
                yield box

    async def grade(self, box: Box, folder: Folder, turn: Turn, rollout: str | None) -> dict[str, float]:
        """Every number that the tests of a turn report, by name. `rollout` is the id under which artifacts are kept."""
        keep = self.config.artifacts
        if keep is not None and rollout is not None:
            keep = keep / folder.name / rollout / turn.name
        opened = partial(boxes.opened, taskset=manifest().name, trusted=self.config.trust_compose)
        return await grade(box, folder, turn, opened, keep if rollout else None)

    @vf.reward  # type: ignore[untyped-decorator]  # verifiers is not marked as typed
    async def reward(self, trace: vf.Trace, runtime: vf.Runtime) -> dict[str, float]:
        """Run the tests. The designated number is the reward, under its own name; the others become metrics.

        Steps that the agent has taken are graded already; where none was, each is graded untouched.
        """
        # Verifiers scores a rollout whose setup ran out of time as if nothing had happened (rollout.py, open).
        if trace.stop_condition == "setup_timeout":
            raise GradingError("the container was not set up in time, so there is nothing to grade")
        folder = self.read_folder()
        if not folder.has_steps:
            async with self._box(runtime, folder) as box:
                rewards = await self.grade(box, folder, folder.turns[0], trace.id)
        else:
            if not trace.state.steps:
                async with self._box(runtime, folder) as box:
                    await self._play_steps(box, folder, trace.state, _untouched)
            rewards = steps.total(folder, trace.state.steps)
            trace.info["steps"] = [record.model_dump() for record in trace.state.steps]
            for record in trace.state.steps:
                trace.record_metrics({f"{record.name}/{key}": value for key, value in (record.rewards or {}).items()})
        name = designated(rewards, self._reward_key())
        trace.record_metrics({key: value for key, value in rewards.items() if key != name})
        return {name: rewards[name]}

    async def validate(self, runtime: vf.Runtime) -> bool | None:
        """Whether the reference solution earns 1 or more; None if there is none."""
        folder = self.read_folder()
        if all(turn.solution is None for turn in folder.turns):
            return None
        async with self._box(runtime, folder) as box:
            if folder.has_steps:
                state = StepsState()

                async def act(turn: Turn) -> bool:
                    if turn.solution is not None:
                        await reference.play(box.main, folder, turn)
                    return True

                await self._play_steps(box, folder, state, act)
                rewards = steps.total(folder, state.steps)
            else:
                await reference.play(box.main, folder, folder.turns[0])
                rewards = await self.grade(box, folder, folder.turns[0], None)
        return rewards[designated(rewards, self._reward_key())] >= 1.0

    async def _play_steps(self, box: Box, folder: Folder, state: StepsState, act: steps.Act) -> None:
        async def graded(turn: Turn) -> dict[str, float]:
            return await self.grade(box, folder, turn, None)

        await steps.play(box.main, folder, state, act, graded)

    async def play_reference(self, runtime: vf.Runtime, step: str | None = None) -> int | None:
        """Play the reference solution, of one of the steps where there are steps, in a container that is set up.

        Returns its exit status; None where its time was over, and where a step has none, as Harbor then grades what is
        there.

        Raises:
            FileNotFoundError: the task has no reference solution.
        """
        folder = self.read_folder()
        turn = next(turn for turn in folder.turns if turn.name == (step or ""))
        if folder.has_steps and turn.solution is None:
            return None
        return await reference.play(RuntimeMachine(runtime), folder, turn)

    def _reward_key(self) -> str:
        return self.config.reward_key or manifest().reward_key


async def _untouched(turn: Turn) -> bool:
    return True


def require_docker(runtime: str) -> None:
    """Raise ValueError unless the runtime is Docker."""
    if runtime != "docker":
        raise ValueError(
            f"these tasks run on the docker runtime only, not on {runtime!r}: their images are built by the local "
            "Docker, which is also asked for their WORKDIR and ENTRYPOINT; use --env.agent.runtime.type docker "
            "(vf-validate: --runtime.type docker)"
        )
