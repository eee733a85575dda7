"""What is read of a task.toml, with the types and defaults of harbor 0.25 (models/task/config.py)."""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, FiniteFloat, model_validator

_SIZE = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*([GMK])\s*", re.IGNORECASE)
_MEBIBYTES = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}

Allowed = tuple[str, ...]
"""The hosts that may be reached: `("*",)` is every host, `()` is none."""

EVERY_HOST: Allowed = ("*",)


class Table(BaseModel):
    """A table of task.toml. Keys that Harbor does not know are ignored, as Harbor ignores them."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Phase(Table):
    """What [environment], [agent] and [verifier] may each say about the network."""

    network_mode: Literal["public", "no-network", "allowlist"] | None = None
    allowed_hosts: list[str] | None = None

    @property
    def allowed(self) -> Allowed | None:
        """The hosts that may be reached; None where nothing is said."""
        if self.network_mode is None:
            return None
        return EVERY_HOST if self.network_mode == "public" else tuple(self.allowed_hosts or ())


class Healthcheck(Table):
    """[environment.healthcheck] and [steps.healthcheck]; times in seconds."""

    command: str
    interval_sec: float = 5.0
    timeout_sec: float = 30.0
    start_period_sec: float = 0.0
    start_interval_sec: float = 5.0
    retries: int = 3


class McpServer(Table):
    """An entry of [[environment.mcp_servers]]."""

    name: str
    transport: Literal["stdio", "sse", "streamable-http", "http"] = "sse"
    url: str | None = None
    command: str | None = None
    args: list[str] = []
    headers: dict[str, str] = {}


class Environment(Phase):
    """[environment] and [verifier.environment]: a container. Sizes in MiB, times in seconds."""

    docker_image: str | None = None
    build_timeout_sec: float = 600.0
    os: str = "linux"
    cpus: FiniteFloat | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    gpus: int | None = None
    gpu_types: list[str] | None = None
    tpu: dict[str, Any] | None = None
    env: dict[str, str] = {}
    workdir: str | None = None
    mcp_servers: list[McpServer] = []
    skills_dir: str | None = None
    healthcheck: Healthcheck | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_legacy_keys(cls, table: Any) -> Any:
        """Read `memory = "4G"` as `memory_mb = 4096`, `storage` alike, and `allow_internet` as a network mode."""
        if not isinstance(table, dict):
            return table
        table = dict(table)
        for legacy, key in (("memory", "memory_mb"), ("storage", "storage_mb")):
            size = table.pop(legacy, None)
            # Harbor drops a legacy size that is not a string (`memory = 2048`), so its tasks run without that limit.
            if not isinstance(size, str):
                continue
            mebibytes = _mebibytes(legacy, size)
            if table.setdefault(key, mebibytes) != mebibytes:
                raise ValueError(f"{legacy} = {size!r} contradicts {key} = {table[key]!r}; keep {key} only")
        if table.pop("allow_internet", None) is False and not {"network_mode", "allowed_hosts"} & table.keys():
            table["network_mode"] = "no-network"
        return table

    @property
    def baseline(self) -> Allowed:
        """The hosts that may be reached where no phase says otherwise."""
        return EVERY_HOST if self.allowed is None else self.allowed


class Agent(Phase):
    """[agent]: seconds the agent has (None: no limit) and the user it runs as (None: the image's)."""

    timeout_sec: float | None = None
    user: str | int | None = None


class Collect(Table):
    """An entry of [[verifier.collect]]: a command run after the agent. Times in seconds."""

    command: str
    service: str = "main"
    timeout_sec: float = 60.0
    user: str | int | None = None


class Artifact(Table):
    """An entry of `artifacts`: a path of a container that is kept, or given to tests in a container of their own."""

    source: str
    destination: str | None = None
    exclude: list[str] = []
    service: str | None = None


def _tables(artifacts: Any) -> Any:
    if not isinstance(artifacts, list):
        return artifacts
    return [{"source": item} if isinstance(item, str) else item for item in artifacts]


Artifacts = Annotated[list[Artifact], BeforeValidator(_tables)]
"""`artifacts`: each entry a table, or a string that is its source."""


class Verifier(Phase):
    """[verifier]: seconds from the upload of tests/ to the reward, their user (None: the image's) and environment."""

    timeout_sec: float = 600.0
    user: str | int | None = None
    env: dict[str, str] = {}
    environment_mode: Literal["shared", "separate"] | None = None
    environment: Environment | None = None
    collect: list[Collect] = []

    @property
    def separate(self) -> bool | None:
        """Whether the tests have a container of their own; None where nothing is said."""
        if self.environment_mode is not None:
            return self.environment_mode == "separate"
        return None if self.environment is None else True


class Solution(Table):
    """[solution]: the environment of the reference solution."""

    env: dict[str, str] = {}


class Package(Table):
    """[task]: what the task is called. Harbor wants `org/name`; here it is only a label."""

    name: str | None = None
    description: str | None = None


class Step(Table):
    """An entry of [[steps]]."""

    name: str
    agent: Agent = Agent()
    verifier: Verifier = Verifier()
    min_reward: float | dict[str, float] | None = None
    healthcheck: Healthcheck | None = None
    artifacts: Artifacts = []


class TaskToml(Table):
    """A whole task.toml."""

    task: Package = Package()
    metadata: dict[str, Any] = {}
    environment: Environment = Environment()
    agent: Agent = Agent()
    verifier: Verifier = Verifier()
    solution: Solution = Solution()
    artifacts: Artifacts = []
    steps: list[Step] = []
    multi_step_reward_strategy: Literal["mean", "final"] | None = None


def _mebibytes(key: str, size: str) -> int:
    match = _SIZE.fullmatch(size)
    if match is None:
        raise ValueError(f'{key} = {size!r} is not a size such as "4G", "512M" or "100K"; write {key}_mb in MiB')
    return int(float(match[1]) * _MEBIBYTES[match[2].upper()])
