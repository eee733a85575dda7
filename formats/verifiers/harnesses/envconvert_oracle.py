"""`--env.agent.harness.id envconvert-oracle`: play the reference solution instead of a model.

For packages written by envconvert: the task class beside the class of the task's data knows how.
"""

from pathlib import Path

import verifiers.v1 as vf
from envconvert_turn import take_turn

__all__ = ["OracleHarness"]


class OracleHarnessConfig(vf.HarnessConfig):
    """Where the tasks are."""

    path: Path | None = None
    """What `--env.taskset.path` says, if it is given; a harness is not told."""


class OracleHarness(vf.Harness[OracleHarnessConfig]):
    """Play the reference solution. A task without one ends in a HarnessError, and so without a reward."""

    APPENDS_SYSTEM_PROMPT = True  # no prompt is used, so none is rewritten
    SUPPORTS_MCP = True  # tools are not used either
    SUPPORTS_RESUME = True
    SUPPORTS_SKILLS = True  # nor skills

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        """Play it and succeed, whatever its exit status: the tests judge what it left behind.

        Raises:
            FileNotFoundError: the task has no reference solution.
        """
        await take_turn(ctx, runtime, endpoint, secret, data)
        task_type = vf.task_type(package_of(data))
        config = task_type.config_type()(path=self.config.path)
        step: str | None = getattr(trace.state, "step", None)
        trace.info["oracle_exit_status"] = await task_type(data, config).play_reference(runtime, step)
        return vf.ProgramResult(0, "", "")


def package_of(data: vf.TaskData) -> str:
    """The package written by envconvert that defines the class of `data`.

    Raises:
        TypeError: there is no such package.
    """
    package = type(data).__module__.partition(".")[0]
    if not hasattr(vf.task_type(package), "play_reference"):
        raise TypeError(f"the tasks of {package!r} have no reference solution that this harness can play")
    return package
