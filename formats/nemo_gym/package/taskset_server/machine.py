"""A sandbox of Gym, as the runner sees it, and the commands of an agent in it."""

import asyncio
import shlex
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tarfile import ReadError

from nemo_gym.sandbox import AsyncSandbox

from .runner.archives import pack, unpack
from .runner.docker import DockerMachine, docker
from .runner.machine import Excluded, MachineError, Ran, nothing
from .runner.task_toml import EVERY_HOST, Allowed

LABEL = "envconvert.sandbox"
"""A label of Docker by which a sandbox's container is found: Gym does not tell its name."""

_LONGEST = 100_000
"""Bytes of an agent's command: Linux takes 131,072 for one argument, and the command is quoted in it."""

_CALL = "ENVCONVERT_CALL"
"""A variable that every process of an agent's command inherits, by which it is found when its time is over."""

# Runs $1 in bash, whose output and errors are each cut down to their first and last $2 bytes.
_BOUNDED = r"""
kept() {
  LC_ALL=C
  head -c "$1"
  rest=$(tail -c "$(($1 + 1))"; printf .)
  rest=${rest%.}
  if [ "${#rest}" -gt "$1" ]; then
    printf '\n[the middle of a longer output is left out here]\n'
    rest=${rest:1}
  fi
  printf %s "$rest"
}
exec 4>&1
{
  bash -c "$1" </dev/null 2>&3 3>&- 4>&- | kept "$2" >&4 2>/dev/null 3>&- 4>&-
  exit "${PIPESTATUS[0]}"
} 3>&1 | kept "$2" >&2 2>/dev/null
exit "${PIPESTATUS[0]}"
"""

# Ends every process that has the variable $1, and what those start meanwhile.
_END = r"""
for pass in 1 2 3 4 5; do
  found=
  for process in /proc/[0-9]*; do
    if grep -q "$1" "$process/environ" 2>/dev/null; then
      kill -KILL "${process#/proc/}" 2>/dev/null && found=yes
    fi
  done
  [ -n "$found" ] || break
done
"""


@dataclass(frozen=True, slots=True)
class Stopped:
    """A command that was ended because its time was over."""


class SandboxMachine:
    """A sandbox that runs. Its image needs a shell, and tar for what is copied; only an agent needs bash."""

    def __init__(self, sandbox: AsyncSandbox, seconds: float, label: str | None) -> None:
        """Command `sandbox`, which lives `seconds` at most. `label` is how Docker finds it; None: it is not Docker's.

        A `workdir` that is empty is the sandbox's own.
        """
        self.workdir = ""
        self._sandbox = sandbox
        self._seconds = seconds
        self._label = label

    async def run(
        self, command: Sequence[str], env: Mapping[str, str] | None = None, user: str | int | None = None
    ) -> Ran:
        """Do what `Machine.run` says. A cancelled call leaves behind what runs inside, until the sandbox is stopped."""
        ran = await self._exec(shlex.join(command), env, user, self._seconds)
        if isinstance(ran, Stopped):
            raise MachineError(f"the sandbox was stopped during {command[0]}: it is given {self._seconds:g} s in all")
        return ran

    async def _exec(
        self, command: str, env: Mapping[str, str] | None, user: str | int | None, seconds: float
    ) -> Ran | Stopped:
        # The status is printed: providers read a failure of their own out of a command's status and errors.
        line = f"{command}\nprintf '\\n%d' \"$?\""
        try:
            result = await self._sandbox.exec(
                line, cwd=self.workdir or None, env=dict(env or {}) or None, timeout_s=seconds, user=user
            )
        except (OSError, RuntimeError) as error:
            raise MachineError(f"the sandbox cannot run a command: {error}") from error
        if result.error_type == "timeout":
            return Stopped()
        stdout, _, status = (result.stdout or "").rpartition("\n")
        if result.error_type is not None or not status.isdecimal():
            raise MachineError(f"the sandbox does not run a command: {(result.stderr or '').strip()[-1000:]}")
        return Ran(int(status), stdout, result.stderr or "")

    async def attempt(self, command: str, seconds: float, kept: int, user: str | int | None) -> Ran | Stopped:
        """Run a command of the agent's in bash for at most `seconds`; of either output, `kept` bytes and NULs left out.

        Nothing of it is left in the sandbox where its time is over, or the call is cancelled.

        Raises:
            MachineError: it cannot be run at all.
        """
        if len(command.encode("utf-8", "replace")) > _LONGEST:
            return Ran(126, "", f"the command is longer than {_LONGEST} bytes; write a long file in several pieces")
        call = uuid.uuid4().hex
        script = shlex.join(["bash", "-c", _BOUNDED, "bash", command, str(kept // 2)])
        done: Ran | Stopped = Stopped()
        try:
            done = await self._exec(script, {_CALL: call}, user, seconds)
        finally:
            if isinstance(done, Stopped):
                await self.run(["sh", "-c", _END, "sh", call], user="root")
        return done

    async def start(self, command: Sequence[str]) -> None:
        """Start a command as the image's user, which goes on by itself and whose output goes nowhere."""
        await self.run(["sh", "-c", f"{shlex.join(command)} </dev/null >/dev/null 2>&1 &"])

    async def put(self, source: Path, target: str, excluded: Excluded = nothing) -> None:
        """Do what `Machine.put` says, by an archive that is unpacked inside."""
        remote = f"/tmp/envconvert-{uuid.uuid4().hex}.tar"
        with tempfile.NamedTemporaryFile(prefix="envconvert-") as archive:
            await asyncio.to_thread(pack, source, target, excluded, archive)
            archive.flush()
            try:
                await self._sandbox.upload(archive.name, remote)
            except (OSError, RuntimeError) as error:
                raise MachineError(f"{source.name} cannot be uploaded: {error}") from error
        await self._tar(f"umask 022; tar -xf {remote} -C /; status=$?; rm -f {remote}; exit $status", 0)

    async def take(self, source: str, target: Path, exclude: Sequence[str] = ()) -> None:
        """Do what `Machine.take` says, by an archive that is packed inside. A relative path counts from `/`."""
        path = PurePosixPath("/") / source
        is_folder = (await self.run(["test", "-d", str(path)], user="root")).exit_code == 0
        if not is_folder and (await self.run(["test", "-e", str(path)], user="root")).exit_code != 0:
            raise MachineError(f"there is no {path}")
        place, name = (str(path), ".") if is_folder else (str(path.parent), f"./{path.name}")
        remote = f"/tmp/envconvert-{uuid.uuid4().hex}.tar"
        options = [f"--exclude={pattern}" for pattern in exclude]
        # 1 is what GNU's tar says where a file has changed meanwhile.
        await self._tar(shlex.join(["tar", "-cf", remote, *options, "-C", place, name]), 1)
        with tempfile.TemporaryDirectory(prefix="envconvert-") as scratch:
            local = Path(scratch) / "archive.tar"
            try:
                await self._sandbox.download(remote, local)
                with local.open("rb") as archive:
                    folder, renamed = (target, None) if is_folder else (target.parent, target.name)
                    await asyncio.to_thread(unpack, archive, folder, renamed)
            except (OSError, RuntimeError, ReadError) as error:
                raise MachineError(f"{path} cannot be downloaded: {error}") from error
        await self.run(["rm", "-f", remote], user="root")

    async def _tar(self, script: str, highest: int) -> None:
        done = await self.run(["sh", "-c", script], user="root")
        if done.exit_code > highest:
            raise MachineError(f"tar failed in the sandbox, whose image must have it: {done.stderr.strip()[-1000:]}")

    async def allow(self, allowed: Allowed) -> None:
        """Do what `Machine.allow` says: everything or nothing, and nothing only with Docker."""
        if self._label is None:
            if allowed != EVERY_HOST:
                raise MachineError("only the docker provider can take a sandbox off the network; use that one")
            return
        found = await docker("ps", "--quiet", "--filter", f"label={LABEL}={self._label}")
        await DockerMachine(found.stdout.strip()).allow(allowed)
