"""How the real OpenEnv loads and scores a package: its validation, its server on loopback, and its client."""

import json
import os
import subprocess
from pathlib import Path

from envconvert.formats.probe import Agent, Framework, Loaded, Score, tail

_DRIVER = Path(__file__).with_name("drivers") / "drive_openenv.py"


class OpenEnvProbe:
    """OpenEnv 0.10.0."""

    framework = Framework(
        name="openenv", requirement="openenv==0.10.0", python=(3, 11), megabytes=390, beside=("pathspec>=0.12",)
    )

    def load(self, python: Path, source: Path) -> Loaded:
        """`openenv validate`, and every task: by the server's Task API, or where it plays none, by `openenv harbor`."""
        command = [str(python.with_name("openenv")), "validate", str(source), "--level", "static"]
        validated = _run(command, source)
        errors = [f"openenv validate: {tail(validated.stderr + validated.stdout)}"] if validated.returncode else []
        done = _run([str(python), str(_DRIVER), "list", str(source)], source)
        if done.returncode:
            return Loaded(tasks=(), errors=(*errors, f"the server failed: {tail(done.stderr)}"))
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        errors += [line["error"] for line in lines if "error" in line]
        return Loaded(tasks=tuple(line["id"] for line in lines if "id" in line), errors=tuple(errors))

    def score(self, python: Path, source: Path, task: str, agent: Agent, reward_key: str | None, work: Path) -> Score:
        """An episode of the served package: reset on the task, the reference for `oracle`, and submit."""
        chosen = {} if reward_key is None else {"REWARD_KEY": reward_key}
        done = _run([str(python), str(_DRIVER), "score", str(source), task, agent], work, chosen)
        if done.returncode:
            return Score(None, f"the server failed: {tail(done.stderr)}")
        return Score(**json.loads(done.stdout.splitlines()[-1]))


def _run(
    command: list[str], folder: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={**os.environ, **(environment or {}), "PYTHONDONTWRITEBYTECODE": "1"},  # the package stays as it is
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )


PROBE = OpenEnvProbe()
