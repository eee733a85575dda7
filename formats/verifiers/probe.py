"""How the real Verifiers loads and scores a package: its loaders, and `vf-eval` on Docker with a harness of ours."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envconvert.formats import packages, replies
from envconvert.formats.probe import NO_REFERENCE, Agent, Framework, Loaded, Posed, Score, known, lines, tail
from envconvert.formats.verifiers.reader import find, read
from envconvert.formats.verifiers.stand_in import stand_in

_HERE = Path(__file__).parent
_LOADER = _HERE / "drivers" / "load_verifiers.py"
_SCORER = _HERE / "drivers" / "score_replies.py"
_HARNESSES = _HERE / "harnesses"


class VerifiersProbe:
    """Verifiers 0.4.0."""

    framework = Framework(
        name="verifiers", requirement="verifiers==0.4.0", python=(3, 11), megabytes=480, beside=("pathspec>=0.12",)
    )

    def load(self, python: Path, source: Path) -> Loaded:
        """Every task of the package through its own `Taskset`."""
        module = _module(source)
        done = subprocess.run(
            [python, _LOADER, module.name],
            env=_environment(module),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            return Loaded(tasks=(), errors=(f"the loader failed: {tail(done.stderr)}",))
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return Loaded(
            tasks=tuple(line["id"] for line in lines if "id" in line),
            errors=tuple(line["error"] for line in lines if "error" in line),
        )

    def score(self, python: Path, source: Path, task: str, agent: Agent, reward_key: str | None, work: Path) -> Score:
        """`vf-eval` for one task: the package's Env and Task, our harness as the agent, a stand-in as its model."""
        module = _module(source)
        if replies.is_reply_file(module / packages.HEADER):
            taskset = read(source, name=None, reward_key=None, select=lambda ids: [task])
            posed = known(taskset, task, agent)
            return NO_REFERENCE if posed is None else self.score_replies(python, source, [posed])[0]
        return self.score_tasks(python, source, [task], agent, reward_key, work, jobs=1)[task]

    def score_tasks(
        self,
        python: Path,
        source: Path,
        tasks: Sequence[str],
        agent: Agent,
        reward_key: str | None,
        work: Path,
        *,
        jobs: int,
    ) -> dict[str, Score]:
        """One `vf-eval` for all of `tasks`, `jobs` at once: it takes longer to start than a small task to be played."""
        module = _module(source)
        command = [str(python.with_name("vf-eval")), module.name, "--select.include.ids", *tasks, "-c", str(jobs)]
        command += ["--env.agent.runtime.type", "docker", "--env.agent.harness.id", f"envconvert-{agent}"]
        # Harbor, on the other side, runs every compose file.
        command += ["--env.taskset.task.trust-compose", "true", "--no-push", "--no-rich", "-o", str(work)]
        if reward_key is not None:
            command += ["--env.taskset.task.reward-key", reward_key]
        with stand_in() as address:
            command += ["--model", "stand-in", "--client.base-url", address, "--client.api-key-var", "STAND_IN_KEY"]
            done = subprocess.run(
                command,
                env={**_environment(module), "STAND_IN_KEY": "none"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                cwd=work,
            )
        episodes = [
            json.loads(line)
            for path in work.glob("**/traces.jsonl")
            for line in path.read_text("utf-8").splitlines()
            if line
        ]
        scores = {episode["task"]["data"]["id"]: _score(episode) for episode in episodes}
        none = Score(None, f"vf-eval ran no rollout: {tail(done.stderr or done.stdout)}")
        return {task: scores.get(task, none) for task in tasks}

    def score_replies(self, python: Path, source: Path, posed: Sequence[Posed]) -> list[Score]:
        """The rewards of the package's own tasks, each on the trace of a rollout that ended with the reply."""
        module = _module(source)
        done = subprocess.run(
            [python, _SCORER, module.name],
            env=_environment(module),
            input=lines(posed),
            capture_output=True,
            text=True,
            errors="replace",
        )
        if done.returncode:
            return [Score(None, f"the package failed: {tail(done.stderr)}") for _ in posed]
        return [Score(**json.loads(line)) for line in done.stdout.splitlines()]


def _score(episode: dict[str, Any]) -> Score:
    """The reward of an episode: the weighted sum, which Verifiers does not store. A null among them was not scored."""
    errors = [*episode["errors"], *(error for trace in episode["traces"] for error in trace["errors"])]
    rewards = [reward for trace in episode["traces"] for reward in trace["rewards"].values()]
    if not episode["ok"] or not rewards or any(reward is None for reward in rewards):
        return Score(None, "; ".join(f"{error['type']}: {tail(error['message'])}" for error in errors) or "not scored")
    return Score(float(sum(reward["score"] * reward["weight"] for reward in rewards)))


def _module(source: Path) -> Path:
    module = find(source)
    if module is None:
        raise ValueError(f"{source} is no package that envconvert wrote")
    return module


def _environment(module: Path) -> dict[str, str]:
    path = os.pathsep.join([str(module.parent), str(_HARNESSES)])
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}  # the package stays as it was written


PROBE = VerifiersProbe()
