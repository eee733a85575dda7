"""How the real Harbor loads and scores task folders: its own classes, and `harbor run` on Docker, one job a task."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from envconvert.formats.harbor.finding import find
from envconvert.formats.probe import Agent, Framework, Loaded, Score, designated, tail

_LOADER = Path(__file__).with_name("drivers") / "load_harbor.py"


class HarborProbe:
    """Harbor 0.25.0."""

    framework = Framework(name="harbor", requirement="harbor==0.25.0", python=(3, 12), megabytes=400)

    def load(self, python: Path, source: Path) -> Loaded:
        """Every task folder of `source` through `harbor.models.task.task.Task`."""
        found = {str(item.path): item.id for item in find(source)}
        done = subprocess.run(
            [python, _LOADER], input=json.dumps(list(found)), env=_environment(), capture_output=True, text=True
        )
        if done.returncode:
            return Loaded(tasks=(), errors=(f"the loader failed: {tail(done.stderr)}",))
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        return Loaded(
            tasks=tuple(found[answer["folder"]] for answer in answers if answer["error"] is None),
            errors=tuple(f"{found[a['folder']]}: {a['error']}" for a in answers if a["error"] is not None),
        )

    def score(self, python: Path, source: Path, task: str, agent: Agent, reward_key: str | None, work: Path) -> Score:
        """`harbor run` for one task; its exit status says nothing, so the trial's result.json is read."""
        folder = next((item.path for item in find(source) if item.id == task), None)
        if folder is None:
            return Score(None, f"{source} has no task {task}")
        command = [str(python.with_name("harbor")), "run", "-p", str(folder), "-a", agent]
        command += ["-o", str(work), "--job-name", "parity", "-q", "-y"]
        done = subprocess.run(
            command, env=_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
        )
        results = sorted(work.glob("parity/*/result.json"))
        if not results:
            return Score(None, f"Harbor ran no trial: {_said(done.stderr or done.stdout)}", started=False)
        return _score(json.loads(results[0].read_bytes()), reward_key)


def _score(result: dict[str, Any], reward_key: str | None) -> Score:
    verified = result.get("verifier_result")
    if verified is not None:
        return designated(verified["rewards"], reward_key)
    if error := result.get("exception_info"):
        return Score(None, f"{error['exception_type']}: {tail(error['exception_message'])}", started=_started(result))
    errors = [step["exception_info"] for step in result.get("step_results") or [] if step["exception_info"]]
    told = [f"{error['exception_type']}: {tail(error['exception_message'])}" for error in errors]
    return Score(None, "; ".join(told) or "no reward")


def _started(result: dict[str, Any]) -> bool:
    """Whether the containers of a trial that failed could be had on this machine.

    Where they could, the agent was set up, or the container's own check failed. Those of the tests come later.
    """
    kind, message = (result["exception_info"][key] for key in ("exception_type", "exception_message"))
    if kind == "ValueError" and "is not supported by" in message:
        return False
    checked = kind == "HealthcheckError" or message.startswith("Command timed out")
    return checked or result.get("agent_setup") is not None


def _said(output: str) -> str:
    """The message in the box or the table that Harbor draws, else the last lines."""
    drawn = [line for line in output.splitlines() if _DRAWN.search(line)]
    return " ".join(" ".join(_DRAWN.sub(" ", line) for line in drawn).split()) or tail(output)


_DRAWN = re.compile(r"[\u2500-\u257f]+")


def _environment() -> dict[str, str]:
    return {**os.environ, "HARBOR_TELEMETRY": "0"}


PROBE = HarborProbe()
