"""The environment: a task is chosen by `reset`, worked on by commands, and graded when it is submitted."""

import os
import time
from abc import abstractmethod
from functools import cache
from typing import Any
from uuid import uuid4

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import EnvironmentMetadata
from openenv.core.utils import run_async_safely

from . import in_docker, in_place
from .episode import Episode
from .models import ContainerAction, ContainerObservation, ContainerState, McpServer
from .runner.folder import Folder, read
from .runner.grading import designated
from .runner.launch import Stopped
from .runner.shards import task_folder
from .tasks import ROOT, Catalogue, settings


class FolderEnvironment(Environment[ContainerAction, ContainerObservation, ContainerState]):
    """One session. `reward_key` names the reward that trains: else it is REWARD_KEY, else what settings.json says."""

    def __init__(self, reward_key: str | None = None) -> None:
        super().__init__()
        self._reward_key = reward_key or os.environ.get("REWARD_KEY") or settings().reward_key
        self._state = ContainerState()
        self.episode: Episode | None = None
        self._deadline: float | None = None

    @staticmethod
    @abstractmethod
    def catalogue() -> Catalogue:
        """The tasks that can be played this way."""

    @abstractmethod
    async def open_episode(self, folder: Folder) -> Episode:
        """Bring a task to where its agent begins."""

    # The Task API.

    def list_splits(self) -> list[dict[str, str]]:
        """The splits, in order."""
        return [{"name": name, "type": _kind(name)} for name in self.catalogue().splits]

    def num_tasks(self, split: str) -> int:
        """How many tasks a split has."""
        return len(self.catalogue().split(split))

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """All tasks of a split."""
        return self.get_task_range(split)

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """One task. Raises IndexError where the split has no such index; they begin with 0."""
        return self.catalogue().at(split, index)

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        """The tasks from `start` up to `stop`. Raises IndexError where one of them is negative or past the end."""
        tasks = self.catalogue()
        count = len(tasks.split(split))
        first, last = start or 0, count if stop is None else stop
        if not 0 <= first <= count or not 0 <= last <= count:
            raise IndexError(f"{first} to {last} is no range of the split {split!r}, which has {count} tasks")
        return [tasks.at(split, index) for index in range(first, last)]

    # An episode.

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> ContainerObservation:
        """Do what `reset_async` does."""
        observation: ContainerObservation = run_async_safely(self.reset_async(seed, episode_id, **kwargs))
        return observation

    async def reset_async(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task_id: str | None = None,
        split: str | None = None,
        index: int | None = None,
        **kwargs: Any,
    ) -> ContainerObservation:
        """Begin the task `task_id`, else the one at `index` of `split`, else the one that `seed` falls on.

        Raises:
            ValueError: an argument is unknown, of the wrong type, or names no task that is served.
            IndexError: the split has no such index.
            RuntimeError: the task's container cannot be started.
        """
        self.close()
        if kwargs:
            known = "seed, episode_id, task_id, split, index"
            raise ValueError(f"reset knows no {', '.join(sorted(kwargs))}; it takes {known}")
        _check_types(str, task_id=task_id, split=split, episode_id=episode_id)
        _check_types(int, seed=seed, index=index)
        if seed is not None and seed < 0:
            raise ValueError(f"the seed is {seed}; it must be 0 or more")
        folder = read(task_folder(ROOT / "tasks", self.catalogue().chosen(task_id, split, index, seed)))
        self.episode = await self.open_episode(folder)
        [turn] = folder.turns
        self._deadline = None if turn.seconds is None else time.monotonic() + turn.seconds
        self._state = ContainerState(episode_id=episode_id or str(uuid4()), step_count=0, task_id=folder.name)
        environment = folder.config.environment
        return ContainerObservation(
            task_id=folder.name,
            instruction=turn.instruction,
            mcp_servers=[McpServer.model_validate(server.model_dump()) for server in environment.mcp_servers],
            skills=environment.skills_dir,
            seconds_left=self._seconds_left(),
        )

    def step(self, action: ContainerAction, timeout_s: float | None = None, **kwargs: Any) -> ContainerObservation:
        """Do what `step_async` does."""
        observation: ContainerObservation = run_async_safely(self.step_async(action, timeout_s, **kwargs))
        return observation

    async def step_async(
        self, action: ContainerAction, timeout_s: float | None = None, **kwargs: Any
    ) -> ContainerObservation:
        """Run a command, or the tests. A `timeout_s` here counts where it is shorter than the action's own.

        Raises:
            ValueError: there is no command to run.
            RuntimeError: no task has been begun, or it has ended; or the tests left no valid reward.
        """
        if self.episode is None:
            over = self._state.task_id is not None
            raise RuntimeError(
                f"the episode of {self._state.task_id} is over; call reset" if over else "call reset first"
            )
        if action.kind == "submit":
            return await self._submit(self.episode)
        if not action.command.strip():
            raise ValueError("an exec action needs a command")
        return await self._run(self.episode, action.command, min(action.timeout_s, timeout_s or action.timeout_s))

    async def _run(self, episode: Episode, command: str, seconds: float) -> ContainerObservation:
        self._state.step_count += 1
        observation = ContainerObservation(task_id=episode.folder.name, reward=0.0)
        limit = self._seconds_left()
        if limit == 0.0:
            observation.stderr = "The time for this task is over and the command was not run: submit what there is."
        else:
            seconds = seconds if limit is None else min(seconds, limit)
            ran = await episode.attempt(command, seconds)
            observation.stdout, observation.stderr = ran.stdout, ran.stderr
            if isinstance(ran, Stopped):
                observation.stderr += f"\n[stopped after {seconds:g} s]"
            else:
                observation.exit_code = ran.exit_code
        observation.seconds_left = self._seconds_left()
        return observation

    async def _submit(self, episode: Episode) -> ContainerObservation:
        self._state.step_count += 1
        self.episode = None  # whatever comes of it: the tests are in there from now on
        try:
            rewards = await episode.grade()
        finally:
            episode.close()
        reward = float(rewards[designated(rewards, self._reward_key)])
        return ContainerObservation(
            task_id=episode.folder.name, done=True, reward=reward, rewards=rewards, seconds_left=self._seconds_left()
        )

    def _seconds_left(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    @property
    def state(self) -> ContainerState:
        """Which task is played, and how many steps it has taken."""
        return self._state

    def close(self) -> None:
        """End the episode that is under way, with its container."""
        episode, self.episode = self.episode, None
        if episode is not None:
            episode.close()

    def get_metadata(self) -> EnvironmentMetadata:
        """What the environment is called."""
        name = settings().taskset
        served = len(self.catalogue().served)
        return EnvironmentMetadata(name=name, description=f"{served} tasks of {name}, each played in a container")


class DockerEnvironment(FolderEnvironment):
    """Every session has a container of its own, which the local Docker runs."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    @staticmethod
    @cache
    def catalogue() -> Catalogue:
        """All that is served at all."""
        return Catalogue(lambda folder: None)

    async def open_episode(self, folder: Folder) -> Episode:
        """Start the task's container."""
        return await in_docker.open_episode(folder)


class LocalEnvironment(FolderEnvironment):
    """One session at a time, in the container that the server runs in."""

    SUPPORTS_CONCURRENT_SESSIONS = False

    @staticmethod
    @cache
    def catalogue() -> Catalogue:
        """What shares the server's image and needs no container of its own."""
        return Catalogue(in_place.why_not)

    async def open_episode(self, folder: Folder) -> Episode:
        """Put the container back as it was."""
        return await in_place.open_episode(folder)


def _check_types(kind: type, **values: Any) -> None:
    for name, value in values.items():
        if value is not None and type(value) is not kind:
            raise ValueError(f"{name} is {value!r}; it must be of type {kind.__name__}")


def _kind(split: str) -> str:
    return split if split in ("train", "validation", "test") else "validation"
