"""`--env.agent.harness.id envconvert-nop`: do nothing, and be graded for it."""

import verifiers.v1 as vf
from envconvert_turn import take_turn

__all__ = ["NopHarness"]


class NopHarness(vf.Harness[vf.HarnessConfig]):
    """An agent that does nothing and succeeds."""

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
        """Hear the model out and do nothing."""
        await take_turn(ctx, runtime, endpoint, secret, data)
        return vf.ProgramResult(0, "", "")
