"""The fixtures in the real frameworks, on Docker; fixtures/harbor/*expected.toml hold the rewards, written by hand."""

import json
import os
import subprocess
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import harbor_scores
import pytest
from conftest import ROOT, make_task, run_json, snapshot

from envconvert import checking, pipeline, scoring
from envconvert.formats.catalogue import FORMATS
from envconvert.formats.probe import Agent, Score
from envconvert.formats.verifiers.probe import PROBE

HARBOR = ROOT / "fixtures" / "harbor"
TASKS = HARBOR / "tasks"
AGENTS: tuple[Agent, ...] = ("oracle", "nop")


def expected_in(name: str) -> dict[str, dict[str, Any]]:
    """What was written by hand beside a group of fixtures."""
    return tomllib.loads((HARBOR / name).read_text("utf-8"))


GROUPS = {"tasks": expected_in("expected.toml"), "features": expected_in("features-expected.toml")}
"""Tasks that Harbor runs on any Linux machine with Docker, by their folder."""
EXPECTED = GROUPS["tasks"]
UNAVAILABLE = expected_in("unavailable-expected.toml")
"""Tasks that it refuses on a machine without the hardware, or without a registry."""

SCORED = [(group, task) for group, tasks in GROUPS.items() for task in sorted(tasks)]


def quiet(line: str) -> None:
    """Progress that nobody reads."""


def converted(group: str, target: Path) -> Path:
    """The fixtures of a group as a Verifiers package, whose module has the group's name."""
    pipeline.convert(HARBOR / group, target, to="verifiers", name=f"envconvert/{group}")
    return target


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first group as a package."""
    return converted("tasks", tmp_path_factory.mktemp("package") / "out")


@pytest.fixture(scope="session")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The second."""
    return converted("features", tmp_path_factory.mktemp("features") / "out")


@pytest.fixture(scope="session")
def scores(
    package: Path,
    features: Path,
    docker: str,
    verifiers_python: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[tuple[str, str, str], Score]:
    """What Verifiers gives for every fixture and both agents: some 250 rollouts, in a run for each agent and group."""
    packages = {"tasks": package, "features": features}
    found: dict[tuple[str, str, str], Score] = {}
    for group, tasks in GROUPS.items():
        for agent in AGENTS:
            work = tmp_path_factory.mktemp("score")
            given = PROBE.score_tasks(verifiers_python, packages[group], sorted(tasks), agent, None, work, jobs=8)
            found |= {(group, task, agent): score for task, score in given.items()}
    return found


def test_every_fixture_has_an_expectation() -> None:
    for group, tasks in {**GROUPS, "unavailable": UNAVAILABLE}.items():
        assert sorted(tasks) == sorted(path.name for path in (HARBOR / group).iterdir())
    assert sum(task.get("oracle") != task.get("nop") for task in GROUPS["tasks"].values()) >= 12
    assert sum(task.get("oracle") != task.get("nop") for task in GROUPS["features"].values()) >= 12


@pytest.mark.parametrize(("group", "task"), SCORED, ids=[task for _, task in SCORED])
def test_harbor_gave_the_expected_rewards(group: str, task: str) -> None:
    release, scored = harbor_scores.kept()
    assert release == FORMATS["harbor"].release
    found = scored[f"{group}/{task}"]
    assert found["digest"] == harbor_scores.digest(HARBOR / group / task), "run python tests/harbor_scores.py"
    assert found["rewards"] == pytest.approx({agent: GROUPS[group][task].get(agent) for agent in AGENTS}, abs=1e-9)


@pytest.mark.docker
@pytest.mark.frameworks
@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize(("group", "task"), SCORED, ids=[task for _, task in SCORED])
def test_verifiers_gives_the_expected_reward(
    scores: dict[tuple[str, str, str], Score], group: str, task: str, agent: Agent
) -> None:
    score, expected = scores[group, task, agent], GROUPS[group][task].get(agent)
    assert score.reward == pytest.approx(expected, abs=1e-9), score.reason


# Scored by Harbor in every run, lest what it once gave be all there is.
SAMPLE = {
    "tasks": ("partial-reward", "reward-not-finite", "unnamed-rewards", "agent-time-limit"),
    "features": ("steps-gate-stops", "separate-fresh", "artifact-folder", "compose-sidecar"),
}


@pytest.mark.docker
@pytest.mark.frameworks
@pytest.mark.parametrize(("group", "task"), [(group, task) for group, tasks in SAMPLE.items() for task in tasks])
def test_parity_of_a_sample(
    package: Path,
    features: Path,
    docker: str,
    harbor_python: Path,
    verifiers_python: Path,
    group: str,
    task: str,
) -> None:
    target = {"tasks": package, "features": features}[group]
    result = scoring.parity(HARBOR / group, target, agents=AGENTS, tasks=task, jobs=2, say=quiet)
    assert [(row.task, row.agent, row.equal) for row in result.rows] == [(task, agent, True) for agent in AGENTS]
    expected = [GROUPS[group][task].get(agent) for agent in AGENTS]
    assert [row.source for row in result.rows] == pytest.approx(expected, abs=1e-9)


# What vf-validate does otherwise than vf-eval: there is no Env, so that services, steps and images are up to the task.
VALIDATED = [(group, task) for group, task in SCORED if group == "tasks"] + [
    ("features", task)
    for task in (
        *("steps-mean", "steps-gate-stops", "steps-verifier-crashes", "steps-workdir", "steps-healthcheck-hangs"),
        *("separate-fresh", "separate-tests-compose", "artifact-folder", "collect-artifact", "healthcheck-fails"),
        *("compose-sidecar", "compose-collect", "compose-steps", "ignore-tests", "mcp-stdio", "trajectory"),
    )
]


@pytest.fixture(scope="session")
def validated(
    package: Path,
    features: Path,
    docker: str,
    verifiers_python: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[tuple[str, str], dict[str, Any]]:
    """What vf-validate says of the fixtures, by group and id."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for group, source in (("tasks", package), ("features", features)):
        work = tmp_path_factory.mktemp("validate")
        wanted = [task for where, task in VALIDATED if where == group]
        command = [str(verifiers_python.with_name("vf-validate")), group, "--runtime.type", "docker", "-c", "4"]
        command += ["--select.include.ids", *wanted, "--no-rich", "-o", str(work)]
        environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        rows = [json.loads(line) for path in work.glob("*/results.jsonl") for line in path.read_text().splitlines()]
        assert len(rows) == len(wanted), done.stderr
        ids = sorted(GROUPS[group], key=os.fsencode)  # rows carry the position, which is that of the id in this order
        found |= {(group, ids[row["index"]]): row for row in rows}
    return found


@pytest.mark.docker
@pytest.mark.frameworks
@pytest.mark.parametrize(("group", "task"), VALIDATED, ids=[task for _, task in VALIDATED])
def test_vf_validate_plays_the_reference(
    validated: dict[tuple[str, str], dict[str, Any]], group: str, task: str
) -> None:
    oracle, nop = GROUPS[group][task].get("oracle"), GROUPS[group][task].get("nop")
    row = validated[group, task]
    if not next((HARBOR / group / task).glob("**/solve.sh"), None):
        assert row["gold"]["reason"] == "unchecked"
    elif oracle is None:
        assert row["gold"]["reason"] == "error", row
    else:
        assert row["gold"]["reason"] == ("valid" if oracle >= 1 else "invalid"), row
    assert row["noop"]["reason"] == ("error" if nop is None else "valid"), row
    assert row["noop"]["reward"] == (None if nop is None else pytest.approx(nop))


@pytest.mark.frameworks
def test_both_frameworks_load_every_fixture(
    package: Path, features: Path, harbor_python: Path, verifiers_python: Path
) -> None:
    for group, target in (("tasks", package), ("features", features)):
        for format, python, folder in (
            ("harbor", harbor_python, HARBOR / group),
            ("verifiers", verifiers_python, target),
        ):
            loaded = FORMATS[format].probe.load(python, folder)
            assert (sorted(loaded.tasks), loaded.errors) == (sorted(GROUPS[group]), ())


# Tasks that Harbor refuses here.

REFUSED = {"tests-no-network": "network-tests", "tpu": "tpu", "windows": "windows"}
"""What a Verifiers package cannot hold of them, and why."""


@pytest.fixture(scope="session")
def unavailable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Those that it can, as a package."""
    return converted("unavailable", tmp_path_factory.mktemp("unavailable") / "out")


def test_what_cannot_be_had_here_is_converted_or_refused_with_its_reason(unavailable: Path) -> None:
    report = json.loads((unavailable / "envconvert.json").read_text("utf-8"))
    losses = {(loss["task"], loss["code"]): loss["severity"] for loss in report["losses"]}
    assert losses == {
        **dict.fromkeys(REFUSED.items(), "refused"),
        ("no-network", "network-setup"): "note",
        ("no-internet", "network-setup"): "note",
        ("agent-allowlist", "network-proxy"): "degraded",
        ("separate-tests-no-network", "network-setup"): "note",
        ("separate-tests-no-network", "artifacts"): "note",
        ("steps-agent-no-network", "network-proxy"): "degraded",
    }
    assert {path.name for path in (unavailable / "unavailable" / "tasks").iterdir()} == UNAVAILABLE.keys() - REFUSED


@pytest.mark.frameworks
def test_what_cannot_be_had_here_is_loaded(unavailable: Path, verifiers_python: Path) -> None:
    loaded = PROBE.load(verifiers_python, unavailable)
    assert (sorted(loaded.tasks), loaded.errors) == (sorted(UNAVAILABLE.keys() - REFUSED), ())


@pytest.mark.docker
@pytest.mark.frameworks
def test_what_cannot_be_had_here_is_unscored_with_harbors_own_message(
    unavailable: Path, docker: str, harbor_python: Path, verifiers_python: Path
) -> None:
    result = scoring.parity(HARBOR / "unavailable", unavailable, agents=("nop",), jobs=6, say=quiet)
    assert (result.equal, result.different, result.unscored) == (0, 0, len(UNAVAILABLE) - len(REFUSED))
    for row in result.rows:
        assert UNAVAILABLE[row.task]["harbor"] in str(row.reason)


@pytest.mark.docker
@pytest.mark.frameworks
@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("task", sorted(UNAVAILABLE.keys() - REFUSED - {"gpu"}))
def test_verifiers_runs_what_it_can_of_them(
    unavailable: Path, docker: str, verifiers_python: Path, tmp_path: Path, task: str, agent: Agent
) -> None:
    score = PROBE.score(verifiers_python, unavailable, task, agent, None, tmp_path)
    assert score.reward == UNAVAILABLE[task][agent], score.reason


@pytest.mark.frameworks
def test_loading_writes_nothing_into_the_package(package: Path, verifiers_python: Path) -> None:
    before = snapshot(package)
    PROBE.load(verifiers_python, package)
    assert snapshot(package) == before


@pytest.mark.docker
@pytest.mark.frameworks
def test_tags_are_earned(package: Path, docker: str, harbor_python: Path, verifiers_python: Path) -> None:
    for folder, framework, release in ((TASKS, "harbor", "0.25.0"), (package, "verifiers", "0.4.0")):
        [result] = checking.check(folder, say=quiet)
        assert (result.framework, result.version, result.status) == (framework, release, "earned"), result.errors
        assert (result.tasks, result.loaded, result.errors) == (len(EXPECTED), len(EXPECTED), [])


@pytest.mark.docker
@pytest.mark.frameworks
def test_a_tag_is_not_earned_without_a_working_reference(tmp_path: Path, docker: str, harbor_python: Path) -> None:
    make_task(tmp_path / "set" / "idle", files={"tests/test.sh": "#!/bin/bash\necho 0 > /logs/verifier/reward.txt\n"})
    [result] = run_json("check", tmp_path / "set", code=3)
    assert (result["status"], result["loaded"]) == ("failed", 1)
    assert "idle: the reference scores 0.0, not 1.0" in result["errors"][0]


@pytest.mark.frameworks
def test_a_broken_folder_in_the_package_is_left_out_and_named(
    tmp_path: Path, package: Path, verifiers_python: Path
) -> None:
    make_task(tmp_path / "source" / "good")
    make_task(tmp_path / "source" / "worse")
    pipeline.convert(tmp_path / "source", tmp_path / "out", to="verifiers", name="org/mixed")
    (tmp_path / "out" / "mixed" / "tasks" / "worse" / "task.toml").write_text("[environment\n")
    loaded = PROBE.load(verifiers_python, tmp_path / "out")
    assert loaded.tasks == ("good",)
    assert len(loaded.errors) == 1
    assert "'worse'" in loaded.errors[0]
    assert "task.toml is not TOML" in loaded.errors[0]


@pytest.mark.docker
@pytest.mark.frameworks
def test_an_image_that_is_nowhere_is_an_error_that_names_what_would_help(
    tmp_path: Path, docker: str, verifiers_python: Path
) -> None:
    toml = '[environment]\ndocker_image = "localhost/envconvert-tests/nowhere:1"\n'
    make_task(tmp_path / "source" / "lost", toml)
    pipeline.convert(tmp_path / "source", tmp_path / "out", to="verifiers", name="org/lost")
    work = tmp_path / "work"
    work.mkdir()
    score = PROBE.score(verifiers_python, tmp_path / "out", "lost", "oracle", None, work)
    assert score.reward is None
    episodes = next(work.glob("**/traces.jsonl")).read_text()
    for words in ("localhost/envconvert-tests/nowhere:1", "environment/Dockerfile", "docker push"):
        assert words in episodes


@pytest.mark.docker
@pytest.mark.frameworks
def test_an_image_that_is_nowhere_is_built_from_its_dockerfile(
    tmp_path: Path, docker: str, verifiers_python: Path
) -> None:
    toml = '[environment]\ndocker_image = "localhost/envconvert-tests/nowhere:1"\n'
    dockerfile = "FROM debian:bookworm-slim\nRUN touch /built\nWORKDIR /srv\n"
    test = "#!/bin/bash\ntest -e /built && test -e /srv/answer.txt && echo 1 > /logs/verifier/reward.txt\n"
    make_task(tmp_path / "source" / "found", toml, {"environment/Dockerfile": dockerfile, "tests/test.sh": test})
    pipeline.convert(tmp_path / "source", tmp_path / "out", to="verifiers", name="org/buildable")
    work = tmp_path / "work"
    work.mkdir()
    assert PROBE.score(verifiers_python, tmp_path / "out", "found", "oracle", None, work).reward == 1.0
    episode = json.loads(next(work.glob("**/traces.jsonl")).read_text().splitlines()[0])
    roles = [node["message"]["role"] for node in episode["traces"][0]["nodes"]]
    assert roles == ["user", "assistant"]  # the one call to the stand-in, recorded as any agent's
    images = [
        docker,
        "images",
        "--format",
        "{{.Repository}}:{{.Tag}}",
        "--filter",
        "label=envconvert.taskset=org/buildable",
    ]
    [image] = subprocess.run(images, capture_output=True, text=True, check=True).stdout.split()
    assert image.startswith("localhost/envconvert/buildable:")
    subprocess.run([docker, "rmi", image], capture_output=True, check=True)


@pytest.mark.frameworks
def test_other_runtimes_are_refused_by_name(package: Path, verifiers_python: Path, tmp_path: Path) -> None:
    command = [str(verifiers_python.with_name("vf-eval")), "tasks", "--env.agent.runtime.type", "podman"]
    command += [
        "--model",
        "none",
        "--client.base-url",
        "http://127.0.0.1:9/v1",
        "--no-push",
        "--no-rich",
        "-o",
        str(tmp_path),
    ]
    environment = {**os.environ, "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert "run on the docker runtime only, not on 'podman'" in done.stderr


@pytest.mark.frameworks
def test_a_wheel_holds_everything_but_what_was_reported(package: Path, verifiers_python: Path, tmp_path: Path) -> None:
    from uv import find_uv_bin

    build = [find_uv_bin(), "build", "--wheel", "--quiet", "--out-dir", str(tmp_path), str(package)]
    subprocess.run(build, check=True, env={**os.environ, "UV_PYTHON": str(verifiers_python)})
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    loaded = PROBE.load(verifiers_python, tmp_path / "installed")
    assert (sorted(loaded.tasks), loaded.errors) == (sorted(EXPECTED), ())

    def contents(folder: Path) -> dict[bytes, bytes]:
        return {path: data for path, (_, data) in snapshot(folder).items() if (folder / os.fsdecode(path)).is_file()}

    tasks = Path("tasks", "tasks")
    there, here = contents(tmp_path / "installed" / tasks), contents(package / tasks)
    reported = {
        f"{loss['task']}/{loss['field']}".encode()
        for loss in json.loads((package / "envconvert.json").read_text())["losses"]
        if loss["code"].startswith("wheel-")
    }
    assert there.keys() == here.keys()
    assert {path for path in here if there[path] != here[path]} <= reported
