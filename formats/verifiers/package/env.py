"""The environment: one agent, on Docker, with the image provided before the rollout starts."""

import asyncio
from contextlib import AsyncExitStack, suppress

import verifiers.v1 as vf
from verifiers.v1.utils.compile import resolve_runtime_config

from . import boxes, conversation, network, steps
from .conversation import Course
from .runner.folder import Folder, Turn
from .runner.task_toml import EVERY_HOST
from .task import FolderTask, manifest, require_docker
from .users import user_name


class FolderEnvConfig(vf.SingleAgentEnvConfig):
    """The one agent; on Docker unless told otherwise, which `FolderEnv` then refuses."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.DockerConfig())
    keep_conversation: bool = False
    """Let the agent go on with its conversation from step to step. Harbor begins a new one at each."""


class StepError(RuntimeError):
    """The steps of a task cannot be taken to their end."""


class FolderEnv(vf.SingleAgentEnv, vf.Env[FolderEnvConfig]):
    """Verifiers' single-agent environment for tasks whose images are built where they run."""

    def __init__(self, config: FolderEnvConfig) -> None:
        """Refuse, before anything runs, what would end in a reward that means nothing.

        Raises:
            ValueError: another runtime than Docker, or a time limit that verifiers would score as if it had been kept.
        """
        super().__init__(config)
        require_docker(config.agent.runtime.type)
        for stage in ("setup", "scoring"):
            if getattr(config.agent.timeout, stage) is not None:
                raise ValueError(
                    f"--env.agent.timeout.{stage} is not supported: verifiers turns its end into a reward of 0 "
                    "without an error; build_timeout_sec and [verifier].timeout_sec of each task.toml are the limits"
                )

    async def run(self, task: FolderTask, agents: vf.Agents) -> None:
        """Provide the image and the services, then let the agent play the task."""
        folder = task.read_folder()
        trusted = task.config.trust_compose
        await boxes.provided(folder.definition, manifest().name, trusted=trusted)
        if task.data.skills and not agents.agent.harness.SUPPORTS_SKILLS:
            task = task.with_data(skills=[])  # Harbor, too, gives them only to agents that know what to do with them
        async with AsyncExitStack() as stack:
            box = None
            if folder.definition.has_compose:
                config = resolve_runtime_config(agents.agent.runtime_config, task)
                started = boxes.services(folder.definition, config, manifest().name, trusted=trusted)
                box = await stack.enter_async_context(started)
            runtime = None if box is None else boxes.runtime_of(box)
            user = await user_name(task.data.image, folder.turns[0])
            task = task.in_box(box).with_data(agent_user=user)
            if folder.has_steps:
                await self._play_steps(task, folder, agents.agent, runtime)
            else:
                await agents.agent.run(task, runtime=runtime)

    async def _play_steps(self, task: FolderTask, folder: Folder, agent: vf.Agent, runtime: vf.Runtime | None) -> None:
        """Take the steps in one interaction, a turn each; the tests of each follow it at once."""
        kept = self.config.keep_conversation
        if kept and len({turn.user for turn in folder.turns}) > 1:
            raise StepError(f"{folder.name}: its steps have different users, and so no conversation in common")
        course = Course(kept=kept, limited=any(turn.allowed != EVERY_HOST for turn in folder.turns))
        agent.harness = conversation.stepwise(agent.harness, course)
        async with agent.interaction(task, runtime=runtime) as interaction:
            trace = interaction.trace
            assert task.live is not None  # `interaction` has set it up
            box = task.box(task.live)

            async def act(turn: Turn) -> bool:
                course.user = await user_name(task.data.image, turn)
                course.allowed = network.within(agent.runtime_config, turn.allowed)
                message = None if turn is folder.turns[0] else turn.instruction
                limit = asyncio.timeout(turn.seconds)
                try:
                    async with limit:
                        segment = await interaction.turn(message)
                except TimeoutError:
                    if not limit.expired():
                        raise
                    return True  # as in Harbor: the tests judge what is there, and the next step begins
                if trace.errors:
                    raise _AgentFailedError
                if segment.terminated and trace.stop_condition is None:
                    raise StepError(f"step {turn.name}: the agent asked no model, and verifiers ends the interaction")
                return trace.stop_condition is None

            async def graded(turn: Turn) -> dict[str, float]:
                return await task.grade(box, folder, turn, trace.id)

            with suppress(_AgentFailedError):  # the trace has the error, and closes without a reward
                await steps.play(box.main, folder, trace.state, act, graded)


class _AgentFailedError(Exception):
    """Unwinds the steps when the agent has failed."""
