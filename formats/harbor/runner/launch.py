"""Containers that are started as Harbor's compose file starts them, and the commands of an agent in them."""

import asyncio
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from .docker import DockerMachine, docker, docker_now
from .machine import MachineError, Ran
from .task_toml import Allowed, Environment

PREFIX = "envconvert-"
"""How the names of containers and networks begin."""

_LABEL = "envconvert.taskset"
_HEALTH_SECONDS = 0.5

# Says first, on standard error, which process it becomes.
_ANNOUNCE = ("sh", "-c", 'echo $$ >&2; exec "$@"', "sh")
# Ends every process of the session $1; in /proc/PID/stat, what follows the last `)` has the session in fourth place.
_END_SESSION = """
for stat in /proc/[0-9]*/stat; do
  read -r line 2>/dev/null <"$stat" || continue
  pid=${stat#/proc/}
  set -- "$1" ${line##*) }
  if [ "$5" = "$1" ]; then kill -KILL "${pid%/stat}" 2>/dev/null; fi
done
true
"""


@dataclass(frozen=True, slots=True)
class Stopped:
    """A command that was ended because its time was over, and what it had printed until then."""

    stdout: str
    stderr: str


class Launched(DockerMachine):
    """A container that `launch` started."""

    async def attempt(self, command: str, seconds: float, kept: int, user: str | int | None) -> Ran | Stopped:
        """Run a command of the agent's in bash, for at most `seconds`; of each output, `kept` bytes are kept.

        Nothing of it is left in the container when its time is over, but for what has begun a session of its own.

        Raises:
            MachineError: it cannot be run at all.
        """
        options = ["--workdir", self.workdir] + ([] if user is None else ["--user", str(user)])
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *("docker", "exec", *options, self.container, *_ANNOUNCE, "bash", "-c", command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        outputs = (Output(kept), Output(kept))
        try:
            leader = (await process.stderr.readline()).decode(errors="replace").strip()
            if not leader.isdecimal():
                raise MachineError(f"docker exec failed: {leader}")
            limit = asyncio.timeout(seconds)
            try:
                async with limit:
                    await asyncio.gather(_read(process.stdout, outputs[0]), _read(process.stderr, outputs[1]))
                    await process.wait()
            except TimeoutError:
                if not limit.expired():
                    raise
                await docker("exec", "--user", "root", self.container, "sh", "-c", _END_SESSION, "sh", leader)
                return Stopped(*map(str, outputs))
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return Ran(int(process.returncode or 0), *map(str, outputs))

    def remove(self) -> None:
        """End the container and all that is in it. Nothing happens where it is gone already."""
        docker_now("rm", "--force", "--volumes", self.container)


@dataclass(slots=True)
class Output:
    """What a command prints, without its middle where it is more than `kept` bytes."""

    kept: int
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    left_out: int = 0

    def add(self, data: bytes) -> None:
        """Take in what was printed next."""
        half = self.kept // 2
        room = half - len(self.head)
        self.head += data[:room]
        self.tail += data[room:]
        excess = max(0, len(self.tail) - half)
        del self.tail[:excess]
        self.left_out += excess

    def __str__(self) -> str:
        head, tail = (part.decode(errors="replace") for part in (self.head, self.tail))
        return f"{head}\n[{self.left_out} bytes are left out here]\n{tail}" if self.left_out else head + tail


async def _read(stream: asyncio.StreamReader, output: Output) -> None:
    while data := await stream.read(1 << 16):
        output.add(data)


async def launch(
    image: str, environment: Environment, env: Mapping[str, str], network: str, allowed: Allowed, taskset: str
) -> Launched:
    """Start a container of an image that is on this machine: its ENTRYPOINT, with a command that only sleeps.

    `env` is `environment.env`, resolved; `network` is one that exists; `taskset` becomes a label. The container is up,
    and healthy where its image has a check of its own, and may reach `allowed`.

    Raises:
        MachineError: it cannot be started.
    """
    name = f"{PREFIX}{uuid.uuid4().hex}"
    options = ["--name", name, "--label", f"{_LABEL}={taskset}", "--network", network]
    for key, value in env.items():
        options += ["--env", f"{key}={value}"]
    if environment.cpus is not None:
        options += ["--cpus", f"{environment.cpus:g}"]
    if environment.memory_mb is not None:
        options += ["--memory", f"{environment.memory_mb}m"]
    if environment.gpus:
        options += ["--gpus", str(environment.gpus)]
    machine = Launched(name, network=network)
    try:
        await _must("create", *options, image, "sh", "-c", "sleep infinity")
        await machine.allow(allowed)
        await _must("start", name)
        await _wait_until_up(name)
    except BaseException:
        machine.remove()
        raise
    return machine


async def _wait_until_up(name: str) -> None:
    while True:
        state = json.loads(await _must("inspect", "--format", "{{json .State}}", name))
        health = (state.get("Health") or {}).get("Status", "healthy")
        if not state["Running"] or health == "unhealthy":
            logs = await docker("logs", "--tail", "20", name)
            said = (logs.stdout + logs.stderr).strip() or "(nothing)"
            why = "is unhealthy" if state["Running"] else f"exited {state['ExitCode']}"
            raise MachineError(f"the container {why} when it was started; it printed: {said}")
        if health != "starting":
            return
        await asyncio.sleep(_HEALTH_SECONDS)


async def _must(*arguments: str) -> str:
    done = await docker(*arguments)
    if done.exit_code != 0:
        raise MachineError(f"docker {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout


def create_network(taskset: str) -> str:
    """Make a network whose containers reach every host but one another, labelled with `taskset`; its name.

    Raises:
        MachineError: docker refused it.
    """
    name = f"{PREFIX}{uuid.uuid4().hex}"
    options = ["--opt", "com.docker.network.bridge.enable_icc=false", "--label", f"{_LABEL}={taskset}"]
    done = docker_now("network", "create", *options, name)
    if done.returncode != 0:
        raise MachineError(f"docker network create failed: {done.stderr.strip()}")
    return name


def remove_network(name: str) -> None:
    """Remove a network. Nothing happens where it is in use, or gone already."""
    docker_now("network", "rm", name)


def answers() -> bool:
    """Whether there is a docker command, and an engine that answers it."""
    try:
        return docker_now("version").returncode == 0
    except FileNotFoundError:
        return False
