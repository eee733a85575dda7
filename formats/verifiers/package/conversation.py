"""How an agent goes from one step to the next: with a new conversation, as Harbor's does, or with the one it has.

Verifiers resumes the conversation when an interaction takes its next turn. A stepwise harness is the one chosen, but
for its session, which begins anew at each step unless it is to be kept.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import verifiers.v1 as vf
from verifiers.v1.harness import HarnessSession
from verifiers.v1.rollout import resolve_agent_runtime

from . import network


@dataclass
class Course:
    """What the session must know of the step that is about to be taken."""

    kept: bool
    """Whether the conversation goes on over the steps."""
    limited: bool
    """Whether the network is limited in any of them."""
    user: str | None = None
    """The name of the user that the agent runs as; None: the image's."""
    allowed: tuple[str, ...] = ()
    ready: set[str | None] = field(default_factory=set)
    """Users for whom the harness is set up."""


class _Stepwise(vf.Harness[vf.HarnessConfig]):
    """Mixed into the class of a harness."""

    course: ClassVar[Course]

    async def session(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
        tool_interception_url: str | None = None,
    ) -> HarnessSession:
        """A session over sessions of the harness itself."""
        inner = super().session
        options = {} if tool_interception_url is None else {"tool_interception_url": tool_interception_url}

        async def opened(runtime: vf.Runtime, data: vf.TaskData) -> HarnessSession:
            return await inner(ctx, trace, runtime, endpoint, secret, mcp_urls, data, **options)

        session = _Session(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data, tool_interception_url)
        session.begin(self.course, opened)
        return session


class _Session(HarnessSession):
    """One session of the harness for all steps, or one for each."""

    def begin(self, course: Course, opened: Callable[[vf.Runtime, vf.TaskData], Awaitable[HarnessSession]]) -> None:
        self._course = course
        self._opened = opened
        self._inner: HarnessSession | None = None
        course.ready.add(self.runtime.user)  # rollout.py, open

    async def turn(self, messages: Any = None) -> None:
        """Take one step: `messages` holds what it asks, or None for the task's own prompt."""
        course = self._course
        if course.limited:
            await network.allow(self.runtime, course.allowed, [self.endpoint, *self.mcp_urls.values()])
        if course.kept and self._inner is not None:
            await self._inner.turn(messages)
            return
        await self.close()
        data = self.data if messages is None else self.data.model_copy(update={"prompt": messages[-1].content})
        self._inner = await self._opened(await self._view(), data)
        self._closed = False
        await self._inner.turn(None)

    async def _view(self) -> vf.Runtime:
        """The container as the step's user sees it."""
        course = self._course
        if course.user == self.runtime.user:
            return self.runtime
        view = await resolve_agent_runtime(self.runtime.with_user(None), course.user)
        if course.user not in course.ready:
            await self.harness.setup(view)
            course.ready.add(course.user)
        return view

    async def close(self) -> None:
        """End what is open. Idempotent."""
        if self._inner is not None:
            await self._inner.close()
            self._inner = None
        await super().close()


def stepwise(harness: Any, course: Course) -> Any:
    """`harness` for a task with steps."""
    # A class of its own, since verifiers makes the harness again from its class where a task brings skills (agent.py).
    kind = type(harness)
    return type(f"Stepwise{kind.__name__}", (_Stepwise, kind), {"course": course})(harness.config)
