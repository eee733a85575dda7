"""How the real OpenEnv loads and scores a package: its validation, its server on loopback, and its client."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from envconvert.formats import packages, replies
from envconvert.formats.openenv import reader
from envconvert.formats.probe import NO_REFERENCE, Agent, Framework, Loaded, Posed, Score, known, lines, tail
from envconvert.formats.rules import MATH

_DRIVERS = Path(__file__).parent / "drivers"


class OpenEnvProbe:
    """OpenEnv 0.10.0."""

    framework = Framework(
        name="openenv",
        requirement="openenv==0.10.0",
        python=(3, 11),
        megabytes=390,
        beside=("pathspec>=0.12", MATH),
    )

    def load(self, python: Path, source: Path) -> Loaded:
        """`openenv validate`, and every task: by the server's Task API, or where it plays none, by `openenv harbor`."""
        command = [str(python.with_name("openenv")), "validate", str(source), "--level", "static"]
        validated = _run(command, source)
        errors = [f"openenv validate: {tail(validated.stderr + validated.stdout)}"] if validated.returncode else []
        driver = "score_replies.py" if _asks_for_replies(source) else "drive_openenv.py"
        done = _run([str(python), str(_DRIVERS / driver), "list", str(source)], source)
        if done.returncode:
            return Loaded(tasks=(), errors=(*errors, f"the server failed: {tail(done.stderr)}"))
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        errors += [line["error"] for line in lines if "error" in line]
        return Loaded(tasks=tuple(line["id"] for line in lines if "id" in line), errors=tuple(errors))

    def score(self, python: Path, source: Path, task: str, agent: Agent, reward_key: str | None, work: Path) -> Score:
        """An episode of the served package: reset on the task, the reference for `oracle`, and submit."""
        if _asks_for_replies(source):
            taskset = reader.read(source, name=None, reward_key=None, select=lambda ids: [task])
            posed = known(taskset, task, agent)
            return NO_REFERENCE if posed is None else self.score_replies(python, source, [posed])[0]
        chosen = {} if reward_key is None else {"REWARD_KEY": reward_key}
        command = [str(python), str(_DRIVERS / "drive_openenv.py"), "score", str(source), task, agent]
        done = _run(command, work, chosen)
        if done.returncode:
            return Score(None, f"the server failed: {tail(done.stderr)}")
        return Score(**json.loads(done.stdout.splitlines()[-1]))

    def score_replies(self, python: Path, source: Path, posed: Sequence[Posed]) -> list[Score]:
        """An episode of the served package for each: reset on the task, and the reply."""
        done = _run([str(python), str(_DRIVERS / "score_replies.py"), "score", str(source)], source, said=lines(posed))
        if done.returncode:
            return [Score(None, f"the server failed: {tail(done.stderr)}") for _ in posed]
        return [Score(**json.loads(line)) for line in done.stdout.splitlines()]


def _asks_for_replies(source: Path) -> bool:
    return replies.is_reply_file(source / packages.HEADER)


def _run(
    command: list[str], folder: Path, environment: dict[str, str] | None = None, said: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={**os.environ, **(environment or {}), "PYTHONDONTWRITEBYTECODE": "1"},  # the package stays as it is
        cwd=folder,
        input=said,
        capture_output=True,
        text=True,
        errors="replace",
    )


PROBE = OpenEnvProbe()
