"""The environment: one agent, on Docker, with the image provided before the rollout starts."""

import asyncio

import verifiers.v1 as vf

from . import images
from .task import FolderTask, require_docker


class FolderEnvConfig(vf.SingleAgentEnvConfig):
    """The one agent; on Docker unless told otherwise, which `FolderEnv` then refuses."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.DockerConfig())


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
        """Provide the image, then let the agent play the task."""
        await images.ensured(task.image())
        user = task.data.agent_user
        if user is not None and user.isdecimal():
            # Harbor takes a uid, verifiers only a name that is in the image's /etc/passwd (rollout.py).
            name = await asyncio.to_thread(images.user_name, task.data.image, int(user))
            task = task.with_data(agent_user=name)
        await agents.agent.run(task)
