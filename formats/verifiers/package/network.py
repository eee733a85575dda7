"""The network of a container, phase by phase: what a task allows its agent and its tests to reach.

Verifiers limits it with a proxy: once a container has been cut off, every host that is allowed is reached by HTTP and
HTTPS through it, and nothing else is.
"""

import verifiers.v1 as vf
from verifiers.v1.runtimes import DockerConfig

from .runner.task_toml import EVERY_HOST, Allowed


async def allow(runtime: vf.Runtime, allowed: Allowed, routes: list[str] | None = None) -> None:
    """Let the container reach `allowed` and nothing else, besides `routes`, the addresses of the framework.

    Where it was started with the network open and is to have it open, nothing changes.
    """
    if allowed == EVERY_HOST:
        await runtime.prepare_execution(None)
        return
    runtime.config = with_limit(runtime.config, allowed)
    await runtime.prepare_execution(routes or [])


def with_limit(config: DockerConfig, allowed: Allowed) -> DockerConfig:
    """`config` for a container that may reach `allowed` only, whatever it could reach before."""
    rules = DockerConfig(allow=list(allowed))
    return config.model_copy(update={"allow": rules.allow, "block": rules.block})


def within(config: DockerConfig, allowed: Allowed) -> Allowed:
    """What of `allowed` a person lets the agent reach (`--env.agent.runtime.allow`)."""
    if not config.network_restricted:
        return allowed
    return tuple(config.with_task_network_policy(list(allowed), []).allow)
