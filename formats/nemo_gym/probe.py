"""How the real NeMo Gym loads and scores a Gym root: `gym env validate` and its row models; the server, on Docker."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

from envconvert.formats.probe import Agent, Framework, Loaded, Score, tail

_DRIVERS = Path(__file__).parent / "drivers"


class NemoGymProbe:
    """NeMo Gym 0.7.0."""

    framework = Framework(
        name="nemo-gym",
        requirement="nemo-gym==0.7.0",
        python=(3, 13),
        megabytes=1410,
        beside=("pathspec>=0.12",),
        asks_python="3.13.14",
    )

    def load(self, python: Path, source: Path) -> Loaded:
        """Every environment by `gym env validate`, and every row by Gym's models and the server's."""
        root = source.resolve()
        errors = [error for place in sorted(root.glob("environments/*")) if (error := _invalid(python, root, place))]
        done = _run([str(python), str(_DRIVERS / "check_rows.py"), str(root)], root)
        if done.returncode:
            errors.append(f"the rows cannot be checked: {tail(done.stderr)}")
        if errors:
            return Loaded(tasks=(), errors=tuple(errors))
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return Loaded(
            tasks=tuple(line["id"] for line in lines if "id" in line),
            errors=tuple(line["error"] for line in lines if "error" in line),
        )

    def score(self, python: Path, source: Path, task: str, agent: Agent, reward_key: str | None, work: Path) -> Score:
        """The server in a process of its own: seed, the agent, verify."""
        root = source.resolve()
        servers = [path.parent for path in sorted(root.glob("resources_servers/*/app.py"))]
        if not servers:
            return Score(None, "no task here is played by a server; Harbor runs them behind Gym", started=False)
        command = [str(python), str(_DRIVERS / "play.py"), str(servers[0]), task, agent]
        done = _run([*command, *([reward_key] if reward_key else [])], root, work)
        if done.returncode:
            return Score(None, f"the server failed: {tail(done.stderr)}")
        result = json.loads(done.stdout.splitlines()[-1])
        return Score(result["reward"], result["reason"], started=result["started"])


def _invalid(python: Path, root: Path, place: Path) -> str | None:
    """What `gym env validate` says against an environment; None where it is valid."""
    done = _run(
        [str(python.with_name("gym")), "env", "validate", place.name, "--search-dir", str(root), "--json"], root
    )
    return f"{place.name}: {tail(done.stdout or done.stderr)}" if done.returncode else None


def _run(command: list[str], root: Path, work: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Run Gym; in `work`, or a folder that is removed: it leaves caches and logs where it is called."""
    with tempfile.TemporaryDirectory(prefix="envconvert-", ignore_cleanup_errors=True) as scratch:
        return subprocess.run(
            command,
            env={
                **os.environ,
                "NEMO_GYM_EXTRA_ROOTS": str(root),
                "HF_HUB_OFFLINE": "1",
                "PYTHONDONTWRITEBYTECODE": "1",  # the root stays as it was written
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            cwd=work or scratch,
        )


PROBE = NemoGymProbe()
