"""The tools of a task, which a model is offered and nothing executes."""

from typing import Any, cast

import verifiers.v1 as vf
from mcp.server.mcpserver import MCPServer
from mcp.types import Tool
from pydantic import BaseModel, Field


class Offer(BaseModel):
    """A tool, as taskset.jsonl has it."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})
    """A JSON Schema."""


class ReplyData(vf.TaskData):
    """What a model is shown: a prompt, and tools."""

    tools: list[Offer] = Field(default_factory=list)


class Offers(vf.Toolset[vf.ToolsetConfig]):
    """A server that lists the tools of a rollout's task, which is how verifiers has a model offered any."""

    TOOL_PREFIX = None  # their names are the task's

    async def setup_task(self, task: ReplyData) -> None:
        """Keep what the task offers."""
        self._offers = task.tools

    def register(self, mcp: MCPServer) -> None:
        """List tools that are schemas, where verifiers' own are methods. A call does not come here: it is a reply."""
        cast(Any, mcp).list_tools = self._list

    async def _list(self) -> list[Tool]:
        return [
            Tool(name=offer.name, description=offer.description, input_schema=offer.parameters)
            for offer in self._offers
        ]


if __name__ == "__main__":
    Offers.run()
