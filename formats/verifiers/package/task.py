"""One Verifiers task for one Harbor task folder."""

import asyncio
import json
from functools import cache
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from pydantic import BaseModel

from . import container, images, reference
from .build_context import image_tag
from .folder import Folder, FolderError, read
from .grading import GradingError, designated, grade
from .images import Image
from .variables import resolve

_PACKAGE = Path(__file__).parent
# Verifiers makes a missing workdir (runtimes/docker, start); this one is never missing. `setup` moves on from it.
_START = "/"


class Manifest(BaseModel):
    """The first line of taskset.jsonl: what the package says about the whole taskset."""

    name: str = _PACKAGE.name
    reward_key: str = "reward"


@cache
def manifest() -> Manifest:
    """Read taskset.jsonl beside this file."""
    with (_PACKAGE / "taskset.jsonl").open(encoding="utf-8") as lines:
        return Manifest.model_validate(json.loads(lines.readline()))


def tasks_root(path: Path | None) -> Path:
    """The folder of the task folders: `path`, or the package's own."""
    return path or _PACKAGE / "tasks"


class FolderTaskData(vf.TaskData):
    """What a trace records of a task. Everything else is read from its folder when it is needed."""

    folder: str
    """The name of the task's folder, wherever the taskset lies."""
    difficulty: str | None = None
    category: str | None = None
    tags: tuple[str, ...] = ()


def task_data(folder: Folder) -> FolderTaskData:
    """The task of a folder as Verifiers records it: no absolute path, no resolved variable."""
    config = folder.config
    environment = config.environment
    image = environment.docker_image
    if folder.has_dockerfile:
        image = image_tag(_PACKAGE.name, folder.environment, environment.docker_image)
    user = config.agent.user
    return FolderTaskData(
        id=folder.name,
        name=config.task.name or folder.name,
        description=config.task.description or None,
        prompt=folder.instruction,
        image=image,
        workdir=_START,
        agent_user=None if user is None else str(user),
        # No limit for scoring: verifiers would end it with reward 0 and no error (rollout.py, close). `grade` has one.
        timeout=vf.TaskTimeout(agent=config.agent.timeout_sec),
        resources=vf.TaskResources(
            cpu=environment.cpus, memory=_gibibytes(environment.memory_mb), disk=_gibibytes(environment.storage_mb)
        ),
        folder=folder.name,
        difficulty=_label(config.metadata.get("difficulty")),
        category=_label(config.metadata.get("category")),
        tags=tuple(tag for tag in _list(config.metadata.get("tags")) if isinstance(tag, str)),
    )


def _gibibytes(mebibytes: int | None) -> float | None:
    return None if mebibytes is None else mebibytes / 1024


def _label(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


class FolderTaskConfig(vf.TaskConfig):
    """What may be chosen for all tasks of a run."""

    reward_key: str | None = None
    """Which number of a reward.json trains, where there are several. None: what taskset.jsonl says."""
    path: Path | None = None
    """Set it on the taskset (`--env.taskset.path`): from there it comes here, where a task can see it."""


class FolderTask(vf.Task[FolderTaskData, vf.State, FolderTaskConfig]):
    """A Harbor task: a container, an agent in it, and then tests that leave a reward."""

    NEEDS_CONTAINER = True

    @property
    def key(self) -> str:
        """The name of the folder, which is unique in its taskset and the same on every machine."""
        return str(self.data.folder)

    def read_folder(self) -> Folder:
        """The task's folder as it is now; a task that comes out of a trace or another process finds it again here."""
        return read(tasks_root(self.config.path) / self.data.folder)

    def image(self) -> Image:
        """The task's image and where it comes from."""
        folder = self.read_folder()
        environment = folder.config.environment
        return Image(
            name=str(self.data.image),
            docker_image=environment.docker_image or None,
            context=folder.environment if folder.has_dockerfile else None,
            taskset=manifest().name,
            timeout=environment.build_timeout_sec,
        )

    def runtime_env(self) -> dict[str, str]:
        """The task's [environment.env], resolved. Also provides the image.

        For vf-validate this is the only hook before `docker run` (cli/validate.py), so there a build holds up the event
        loop; in vf-eval `FolderEnv` has provided the image before.
        """
        env = resolve("environment.env", self.read_folder().config.environment.env)
        images.ensure(self.image())
        return env

    async def setup(self, runtime: vf.Runtime) -> None:
        """Bring the container into the state in which Harbor hands it to an agent."""
        require_docker(runtime.type)
        folder = self.read_folder()
        image = await asyncio.to_thread(images.inspect, str(self.data.image))
        chosen = runtime.config.workdir  # still ours, or what the person running chose (utils/compile.py)
        container.move_to(runtime, image.workdir)
        await container.start_entrypoint(runtime, image)
        workdir = chosen if chosen != _START else folder.config.environment.workdir or image.workdir
        if (await runtime.with_user("root").run(["test", "-d", workdir], {})).exit_code != 0:
            raise FolderError(
                f"{folder.name}: task.toml: environment.workdir = {workdir!r} is no folder of the image; "
                "make it in the Dockerfile (WORKDIR)"
            )
        container.move_to(runtime, workdir)
        await container.make_log_folders(runtime)
        if not folder.has_dockerfile and folder.environment.is_dir():
            await container.upload(runtime, folder.environment, workdir)

    @vf.reward  # type: ignore[untyped-decorator]  # verifiers is not marked as typed
    async def reward(self, trace: vf.Trace, runtime: vf.Runtime) -> dict[str, float]:
        """Run the tests. The designated number is the reward, under its own name; the others become metrics."""
        # Verifiers scores a rollout whose setup ran out of time as if nothing had happened (rollout.py, open).
        if trace.stop_condition == "setup_timeout":
            raise GradingError("the container was not set up in time, so there is nothing to grade")
        rewards = await grade(runtime, self.read_folder())
        name = designated(rewards, self._reward_key())
        trace.record_metrics({key: value for key, value in rewards.items() if key != name})
        return {name: rewards[name]}

    async def validate(self, runtime: vf.Runtime) -> bool | None:
        """Whether the reference solution earns 1 or more; None if there is none."""
        folder = self.read_folder()
        if not folder.has_solution:
            return None
        await reference.play(runtime, folder)
        rewards = await grade(runtime, folder)
        return rewards[designated(rewards, self._reward_key())] >= 1.0

    async def play_reference(self, runtime: vf.Runtime) -> int | None:
        """Play the reference solution in a container that is set up; see `reference.play`."""
        return await reference.play(runtime, self.read_folder())

    def _reward_key(self) -> str:
        return self.config.reward_key or manifest().reward_key


def require_docker(runtime: str) -> None:
    """Raise ValueError unless the runtime is Docker."""
    if runtime != "docker":
        raise ValueError(
            f"these tasks run on the docker runtime only, not on {runtime!r}: their images are built by the local "
            "Docker, which is also asked for their WORKDIR and ENTRYPOINT; use --env.agent.runtime.type docker "
            "(vf-validate: --runtime.type docker)"
        )
