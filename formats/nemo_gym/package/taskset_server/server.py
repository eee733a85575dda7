"""The resources server: a sandbox for each session, `bash` as the agent's tool, and the task's tests to verify."""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeVar, cast

from fastapi import FastAPI, HTTPException, Request
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.global_config import get_global_config_dict
from nemo_gym.sandbox.config import resolve_provider_config, resolve_provider_metadata
from nemo_gym.server_utils import SESSION_ID_KEY
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from .machine import SandboxMachine, Stopped
from .runner import container
from .runner.folder import Folder, Turn
from .runner.grading import GradingError, designated, grade
from .runner.machine import Box
from .runner.shards import task_folder
from .sandboxes import Sandboxes
from .supported import read

HERE = Path(__file__).resolve().parent.parent
"""The folder of the server, in a Gym root."""

_KEPT = 32_768
"""Bytes of each output of a command that the agent is shown."""

_SPARE = 3600.0
"""Seconds of a sandbox beside the agent's and the tests': to be set up, and to be asked for its artifacts."""

_DAY = 86_400.0
"""Seconds of an agent whose task sets it no limit: sooner or later a sandbox that nobody asks for must stop."""

_FAULTS = (OSError, ValueError, RuntimeError, LookupError)
"""What goes wrong with a folder, an image or a sandbox."""

_TIME_OVER = 124
"""The exit status of a command that is ended, as timeout(1) has it."""

T = TypeVar("T")


class TasksetServerConfig(BaseResourcesServerConfig):
    """What may be chosen in config.yaml."""

    sandbox_provider: str | dict[str, Any]
    """A provider of Gym with its config, or the name of a block in Gym's config that holds one."""
    reward_key: str | None = None
    """Which number of a reward.json trains, where there are several. None: what taskset.jsonl says."""
    tasks: Path | None = None
    """Another folder of Harbor task folders than that of this Gym root."""


class SeedRequest(BaseSeedSessionRequest):
    """A row. Of it only the task's id matters here."""

    task_id: str


class BashRequest(BaseModel):
    """A call of the tool."""

    command: str


class BashResponse(BaseModel):
    """What the agent is shown."""

    stdout: str
    stderr: str
    exit_code: int


class CloseRequest(BaseModel):
    """The session is given up. Gym 0.7 names it here too; it is known by its cookie."""

    resources_session_id: str = ""


class CloseResponse(BaseModel):
    """It is closed."""

    resources_session_id: str


class VerifyRequest(BaseVerifyRequest):
    """A row and what the agent said."""

    model_config = ConfigDict(extra="allow")

    task_id: str


class VerifyResponse(BaseVerifyResponse):
    """The reward. With `mask_sample` there is none, and the number in `reward`, which Gym demands, means nothing."""

    model_config = ConfigDict(extra="allow")

    mask_sample: bool = False
    failure_kind: str | None = None
    failure_reason: str | None = None
    rewards: dict[str, float] = Field(default_factory=dict)
    """Every number that the tests reported, by name."""


class Manifest(BaseModel):
    """The first line of taskset.jsonl: what is said about the whole taskset."""

    name: str
    reward_key: str = "reward"


@dataclass(frozen=True, slots=True)
class Session:
    """One agent at work on one task."""

    folder: Folder
    box: Box
    ends: float
    """When the agent's time is over, on the loop's clock."""
    stack: AsyncExitStack
    """Stops the sandbox."""

    @property
    def turn(self) -> Turn:
        """The agent's one turn."""
        return self.folder.turns[0]


class TasksetServer(SimpleResourcesServer):
    """Serves the task folders of a Gym root."""

    ray_enabled: ClassVar[bool] = False
    config: TasksetServerConfig

    _sessions: dict[str, Session] = PrivateAttr(default_factory=dict)
    _works: set[asyncio.Task[Any]] = PrivateAttr(default_factory=set)

    def setup_webserver(self) -> FastAPI:
        """Add the tool, and the end of all sandboxes with that of the server."""
        app: FastAPI = super().setup_webserver()
        app.post("/bash")(self.bash)
        around = app.router.lifespan_context

        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[Any]:
            async with around(app) as state:
                try:
                    yield state
                finally:
                    await self._stop_all()

        app.router.lifespan_context = lifespan
        return app

    @property
    def sessions(self) -> dict[str, Session]:
        """The sessions that have begun and are not over, by id."""
        return self._sessions

    @cached_property
    def manifest(self) -> Manifest:
        """What taskset.jsonl of this Gym root says."""
        with (HERE.parents[1] / "taskset.jsonl").open(encoding="utf-8") as lines:
            return Manifest.model_validate(json.loads(lines.readline()))

    @cached_property
    def sandboxes(self) -> Sandboxes:
        """Where sandboxes come from."""
        chosen = self.config.sandbox_provider
        blocks = get_global_config_dict() if isinstance(chosen, str) else None
        return Sandboxes(
            provider=resolve_provider_config(chosen, blocks),
            metadata=resolve_provider_metadata(chosen, blocks),
            repository=HERE.name,
            taskset=self.manifest.name,
        )

    def read_task(self, task_id: str) -> Folder:
        """The folder of a task, in the Gym root or, in a repository for several frameworks, in the folder above it.

        Raises:
            FolderError: it is broken, or not served here.
            OSError: it cannot be read.
            LookupError: there is none.
        """
        root = HERE.parents[1]
        places = [self.config.tasks] if self.config.tasks else [root / "tasks", root.parent / "tasks"]
        tasks = next((place for place in places if place.is_dir()), places[0])
        folder = task_folder(tasks, task_id)
        if task_id in (".", "..") or "/" in task_id or not folder.is_dir():
            raise LookupError(f"there is no task {task_id!r} in {tasks}")
        return read(folder)

    async def seed_session(self, request: Request, body: SeedRequest) -> BaseSeedSessionResponse:
        """Start a sandbox for the task of a row, in place of the session's earlier one."""
        session_id = request.session[SESSION_ID_KEY]
        await self._finished(self._close(session_id))
        opening = self._apart(self._open(session_id, body.task_id))
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:  # nobody waits for it any more
            opening.cancel()
            opening.add_done_callback(lambda _: self._apart(self._close(session_id)))
            raise
        except _FAULTS as error:
            _refuse(f"{body.task_id}: {error}", error)
        return BaseSeedSessionResponse()

    async def _open(self, session_id: str, task_id: str) -> None:
        folder = await asyncio.to_thread(self.read_task, task_id)
        turn, definition = folder.turns[0], folder.definition
        time = turn.seconds or _DAY
        opened = self.sandboxes.opened(definition, definition.environment.baseline, time + turn.tests_seconds + _SPARE)
        stack = AsyncExitStack()
        try:
            box = await stack.enter_async_context(opened)
            if (check := definition.environment.healthcheck) is not None:
                await container.wait_until_healthy(box.main, check)
            await box.main.allow(turn.allowed)
        except BaseException:
            await stack.aclose()
            raise
        self._sessions[session_id] = Session(folder, box, asyncio.get_running_loop().time() + time, stack)

    async def bash(self, request: Request, body: BashRequest) -> BashResponse:
        """Run a command of the agent's, for as long as its time lasts."""
        session = self._sessions.get(request.session[SESSION_ID_KEY])
        if session is None:
            raise HTTPException(404, "there is no sandbox: the session has not begun, or is over")
        left = session.ends - asyncio.get_running_loop().time()
        over = BashResponse(stdout="", stderr="the time for this task is over", exit_code=_TIME_OVER)
        if left <= 0:
            return over
        machine = cast(SandboxMachine, session.box.main)
        attempt = self._apart(machine.attempt(body.command, left, _KEPT, session.turn.user))
        try:
            done = await asyncio.shield(attempt)
        except asyncio.CancelledError:
            attempt.cancel()  # which ends the command in the sandbox, too
            raise
        except _FAULTS as error:
            _refuse(str(error), error)
        return (
            over
            if isinstance(done, Stopped)
            else BashResponse(stdout=done.stdout, stderr=done.stderr, exit_code=done.exit_code)
        )

    async def verify(self, request: Request, body: VerifyRequest) -> VerifyResponse:
        """Run the tests and stop the sandbox. The designated number is the reward."""
        session = self._sessions.pop(request.session[SESSION_ID_KEY], None)
        if session is None:
            return _masked(body, "session_lost", "there is no sandbox of this session")
        try:
            rewards = await self._finished(self._grade(session))
            key = designated(rewards, self.config.reward_key or self.manifest.reward_key)
        except (GradingError, LookupError) as error:
            return _masked(body, "verifier_error", str(error))
        except _FAULTS as error:
            return _masked(body, "provider_unavailable", f"{body.task_id}: {error}")
        return VerifyResponse(**_row(body), reward=rewards[key], rewards=rewards)

    async def _grade(self, session: Session) -> dict[str, float]:
        turn = session.turn
        opened = partial(self.sandboxes.opened, seconds=turn.tests_seconds + _SPARE)
        try:
            return await grade(session.box, session.folder, turn, opened)
        finally:
            await session.stack.aclose()

    async def close_resources_session(self, request: Request, body: CloseRequest) -> CloseResponse:
        """Stop the sandbox of the session, if it has one."""
        await self._finished(self._close(request.session[SESSION_ID_KEY]))
        return CloseResponse(resources_session_id=body.resources_session_id)

    async def _close(self, session_id: str) -> None:
        if (session := self._sessions.pop(session_id, None)) is not None:
            await session.stack.aclose()

    async def _stop_all(self) -> None:
        for work in self._works:
            work.cancel()
        await asyncio.gather(*self._works, return_exceptions=True)
        await asyncio.gather(*map(self._close, list(self._sessions)), return_exceptions=True)

    def _apart(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """`work` in a task of its own: a request that is cancelled must not leave a sandbox half open."""
        task = asyncio.create_task(work)
        self._works.add(task)
        task.add_done_callback(self._works.discard)
        return task

    async def _finished(self, work: Coroutine[Any, Any, T]) -> T:
        """What comes of `work`, which is done to its end even where the request is cancelled."""
        return await asyncio.shield(self._apart(work))


def _refuse(reason: str, error: BaseException) -> NoReturn:
    raise HTTPException(500, reason) from error


def _row(body: VerifyRequest) -> dict[str, Any]:
    """The request, but for what a response says itself."""
    own = VerifyResponse.model_fields.keys() - VerifyRequest.model_fields.keys()
    return {name: value for name, value in body if name not in own}


def _masked(body: VerifyRequest, kind: str, reason: str) -> VerifyResponse:
    """No reward, which is not a reward of 0. Gym before 0.7 cannot be told, so that there the rollout fails."""
    if "mask_sample" not in BaseVerifyResponse.model_fields:
        raise HTTPException(500, reason)
    return VerifyResponse(**_row(body), reward=0.0, mask_sample=True, failure_kind=kind, failure_reason=reason)
