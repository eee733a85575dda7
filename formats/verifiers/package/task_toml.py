"""What this package reads of a task.toml, with the types and defaults of harbor 0.25 (models/task/config.py)."""

import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, FiniteFloat, model_validator

_SIZE = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*([GMK])\s*", re.IGNORECASE)
_MEBIBYTES = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}


class Table(BaseModel):
    """A table of task.toml. Keys that Harbor does not know are ignored, as Harbor ignores them."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Phase(Table):
    """What [environment], [agent] and [verifier] may each say about the network."""

    network_mode: Literal["public", "no-network", "allowlist"] | None = None
    allowed_hosts: list[str] | None = None


class Environment(Phase):
    """[environment]: the container of the agent and of the tests. Sizes in MiB, times in seconds."""

    docker_image: str | None = None
    build_timeout_sec: float = 600.0
    os: str = "linux"
    cpus: FiniteFloat | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    gpus: int | None = None
    tpu: dict[str, Any] | None = None
    env: dict[str, str] = {}
    workdir: str | None = None
    mcp_servers: list[Any] = []
    skills_dir: str | None = None
    healthcheck: dict[str, Any] | None = None
    allow_internet: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_legacy_sizes(cls, table: Any) -> Any:
        """Read `memory = "4G"` as `memory_mb = 4096`, and `storage` alike."""
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
        return table


class Agent(Phase):
    """[agent]: seconds the agent has (None: no limit) and the user it runs as (None: the image's)."""

    timeout_sec: float | None = None
    user: str | int | None = None


class Verifier(Phase):
    """[verifier]: seconds from the upload of tests/ to the reward, their user (None: the image's) and environment."""

    timeout_sec: float = 600.0
    user: str | int | None = None
    env: dict[str, str] = {}
    environment_mode: Literal["shared", "separate"] | None = None
    environment: dict[str, Any] | None = None
    collect: list[Any] = []


class Solution(Table):
    """[solution]: the environment of the reference solution."""

    env: dict[str, str] = {}


class Package(Table):
    """[task]: what the task is called. Harbor wants `org/name`; here it is only a label."""

    name: str | None = None
    description: str | None = None


class TaskToml(Table):
    """A whole task.toml."""

    task: Package = Package()
    metadata: dict[str, Any] = {}
    environment: Environment = Environment()
    agent: Agent = Agent()
    verifier: Verifier = Verifier()
    solution: Solution = Solution()
    steps: list[Any] = []


def _mebibytes(key: str, size: str) -> int:
    match = _SIZE.fullmatch(size)
    if match is None:
        raise ValueError(f'{key} = {size!r} is not a size such as "4G", "512M" or "100K"; write {key}_mb in MiB')
    return int(float(match[1]) * _MEBIBYTES[match[2].upper()])
