"""The MCP servers of a task, as verifiers offers them to the agent.

A server that is reached by streamable HTTP without headers is offered as it is. For any other a bridge runs on this
machine: it speaks to the server from inside the agent's container, with docker, and to the agent through verifiers.
Verifiers' own bridge (tasksets/harbor/toolset.py) would run in the container, where it would have to be installed.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import verifiers.v1 as vf
from mcp import Client
from mcp.client._transport import Transport
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from pydantic import BaseModel
from verifiers.v1.runtimes.docker.egress import is_loopback_host
from verifiers.v1.tasksets.harbor.toolset import HarborMCPConfig, HarborMCPToolset

from .runner.task_toml import McpServer
from .runner.variables import fill

# Reads and writes a connection that is made inside the container; bash is all that it needs there.
_RELAY = 'exec 3<>"/dev/tcp/$0/$1" || exit 1; cat <&3 & reader=$!; cat >&3; kill "$reader"'


class Place(BaseModel):
    """Where the agent's commands run: a container, and what `docker exec` is told for each of them."""

    container: str = ""
    options: list[str] = []


class ReachedServer(vf.Toolset[vf.ToolsetConfig]):
    """A server that runs already: verifiers only hands out its address."""

    def __init__(self, server: McpServer) -> None:
        """Offer `server`."""
        super().__init__(vf.ToolsetConfig(url=server.url))
        self._name = server.name

    @property
    def server_name(self) -> str:
        """The name under which the agent sees its tools."""
        return self._name


class BridgedServer(McpServer):
    """A server, as task.toml declares it but for its headers, which are filled in; and where it is reached from."""

    place: Place


class Bridge(HarborMCPToolset):
    """A server that is spoken to from inside the agent's container."""

    async def setup(self) -> None:
        """Open the session that lasts as long as the rollout."""
        self.client = await self._exit_stack.enter_async_context(Client(await self._transport()))

    async def _transport(self) -> Transport:
        server = BridgedServer.model_validate(self.config.server)
        place = server.place
        if server.transport == "stdio":
            command = ["exec", "--interactive", *place.options, place.container, str(server.command), *server.args]
            return stdio_client(StdioServerParameters(command="docker", args=command, env=dict(os.environ)))
        url, headers = str(server.url), dict(server.headers)
        parts = urlsplit(url)
        if parts.scheme == "http":  # else it is on the network, and there is no telling who it is through a relay
            port = await self._exit_stack.enter_async_context(_relayed(place, str(parts.hostname), parts.port or 80))
            headers.setdefault("Host", parts.netloc)
            url = parts._replace(netloc=f"127.0.0.1:{port}").geturl()
        if server.transport == "sse":
            return sse_client(url, headers=headers)
        client = await self._exit_stack.enter_async_context(create_mcp_http_client(headers))
        return streamable_http_client(url, http_client=client)


@asynccontextmanager
async def _relayed(place: Place, host: str, port: int) -> AsyncIterator[int]:
    """A port of this machine that leads to `port` of `host` as the container sees it."""
    script = ("bash", "-c", _RELAY, host, str(port))

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        command = ("docker", "exec", "--interactive", place.container, *script)
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            await asyncio.gather(_pump(reader, process.stdin), _pump(process.stdout, writer))
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass  # the other side has hung up, at which this one does
    finally:
        writer.close()


def toolsets(servers: list[McpServer], place: Place) -> list[vf.Toolset]:
    """What verifiers serves for `servers`, in a rollout whose agent is at `place`."""
    return [ReachedServer(server) if is_reached(server) else _bridge(server, place) for server in servers]


def is_reached(server: McpServer) -> bool:
    """Whether the agent can be given the address itself."""
    # Verifiers takes a loopback address for one of its own machine (runtimes/docker, host_url).
    own = is_loopback_host(urlsplit(server.url or "").hostname or "")
    return server.transport in ("streamable-http", "http") and not own and not server.headers


def _bridge(server: McpServer, place: Place) -> vf.Toolset:
    headers = {name: fill(value, f"the header {name} of {server.name}") for name, value in server.headers.items()}
    declared = {**server.model_dump(), "headers": headers, "place": place.model_dump()}
    return Bridge(HarborMCPConfig(server=declared))


if __name__ == "__main__":
    Bridge.run()
