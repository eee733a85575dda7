"""What Harbor itself made of the fixtures, kept beside their digests, so that not every run of the tests asks it again.

    python tests/harbor_scores.py

scores each fixture that has changed, with both agents on Docker, and writes fixtures/harbor/scores.json.
"""

import hashlib
import json
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypedDict

from envconvert.environments import interpreter
from envconvert.formats.catalogue import FORMATS
from envconvert.formats.files import walk
from envconvert.formats.probe import Agent

HARBOR = Path(__file__).parent.parent / "fixtures" / "harbor"
GROUPS = ("tasks", "features")
AGENTS: tuple[Agent, ...] = ("oracle", "nop")
KEPT = HARBOR / "scores.json"


class Scored(TypedDict):
    """One fixture: what was scored, and each agent's reward."""

    digest: str
    rewards: dict[str, float | None]


def digest(task: Path) -> str:
    """Of every path, its executable bit and its bytes: what git keeps of a fixture."""
    found = hashlib.sha256()
    for path in walk(task).files():
        place = task / path
        content = os.readlink(place).encode() if place.is_symlink() else place.read_bytes()
        runs = not place.is_symlink() and os.access(place, os.X_OK)
        found.update(f"{path}\0{runs:d}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return found.hexdigest()


def kept() -> tuple[str, dict[str, Scored]]:
    """The release of Harbor that scored the fixtures, and the scores by `group/task`."""
    content: dict[str, Any] = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {"harbor": "", "tasks": {}}
    return content["harbor"], content["tasks"]


def main() -> None:
    """Score what has changed."""
    probe = FORMATS["harbor"].probe
    python = interpreter(probe.framework, print)
    release, before = kept()
    known = before if release == probe.framework.release else {}
    tasks = {f"{group}/{path.name}": path for group in GROUPS for path in sorted((HARBOR / group).iterdir())}

    def scored(name: str) -> Scored:
        found = digest(tasks[name])
        if name in known and known[name]["digest"] == found:
            return known[name]
        rewards: dict[str, float | None] = {}
        for agent in AGENTS:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
                score = probe.score(python, tasks[name].parent, tasks[name].name, agent, None, Path(work))
            rewards[agent] = score.reward
            print(name, agent, score.reward, score.reason or "", flush=True)
        return {"digest": found, "rewards": rewards}

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        scores = dict(zip(tasks, pool.map(scored, tasks), strict=True))
    KEPT.write_text(json.dumps({"harbor": probe.framework.release, "tasks": scores}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
