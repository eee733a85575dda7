"""The fixtures in the real frameworks, on Docker; fixtures/harbor/expected.toml holds the rewards, written by hand."""

import json
import os
import subprocess
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, make_task, run_json, snapshot

from envconvert import checking, pipeline, scoring
from envconvert.formats.catalogue import FORMATS
from envconvert.formats.probe import Agent

TASKS = ROOT / "fixtures" / "harbor" / "tasks"
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads((TASKS.parent / "expected.toml").read_text("utf-8"))
AGENTS: tuple[Agent, ...] = ("oracle", "nop")
PROBE = FORMATS["verifiers"].probe


def quiet(line: str) -> None:
    """Progress that nobody reads."""


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fixtures as a Verifiers package, whose module is `fixtures`."""
    target = tmp_path_factory.mktemp("package") / "out"
    pipeline.convert(TASKS, target, to="verifiers", name="envconvert/fixtures")
    return target


@pytest.fixture(scope="session")
def containers(docker: str) -> Iterator[set[str]]:
    """The containers that were there before; afterwards there are no others."""
    before = _containers(docker)
    yield before
    assert _containers(docker) - before == set()


def _containers(docker: str) -> set[str]:
    done = subprocess.run([docker, "ps", "-a", "--format", "{{.ID}} {{.Image}}"], capture_output=True, text=True)
    return set(done.stdout.splitlines())


@pytest.fixture(scope="session")
def rows(
    package: Path, containers: set[str], harbor_python: Path, verifiers_python: Path
) -> dict[tuple[str, str], scoring.Row]:
    """Parity of every fixture with both agents: 120 runs, so they are made once."""
    result = scoring.parity(TASKS, package, agents=AGENTS, jobs=6, say=quiet)
    return {(row.task, row.agent): row for row in result.rows}


def test_every_fixture_has_an_expectation() -> None:
    assert sorted(EXPECTED) == sorted(path.name for path in TASKS.iterdir())
    assert sum(task.get("oracle") != task.get("nop") for task in EXPECTED.values()) >= 12


@pytest.mark.docker
@pytest.mark.frameworks
@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("task", sorted(EXPECTED))
def test_both_frameworks_give_the_expected_reward(
    rows: dict[tuple[str, str], scoring.Row], task: str, agent: Agent
) -> None:
    row, expected = rows[task, agent], EXPECTED[task].get(agent)
    assert (row.source, row.target) == pytest.approx((expected, expected), abs=1e-9), row.reason
    assert row.equal


@pytest.fixture(scope="session")
def validated(
    package: Path, containers: set[str], verifiers_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """What vf-validate says of every fixture, by id."""
    work = tmp_path_factory.mktemp("validate")
    command = [str(verifiers_python.with_name("vf-validate")), "fixtures", "--runtime.type", "docker", "-c", "4"]
    environment = {**os.environ, "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([*command, "--no-rich", "-o", str(work)], env=environment, capture_output=True, text=True)
    found = [json.loads(line) for path in work.glob("*/results.jsonl") for line in path.read_text().splitlines()]
    assert found, done.stderr
    ids = sorted(EXPECTED, key=os.fsencode)  # rows carry the position, which is that of the id in this order
    return {ids[row["index"]]: row for row in found}


@pytest.mark.docker
@pytest.mark.frameworks
@pytest.mark.parametrize("task", sorted(EXPECTED))
def test_vf_validate_plays_the_reference(validated: dict[str, dict[str, Any]], task: str) -> None:
    oracle, nop = EXPECTED[task].get("oracle"), EXPECTED[task].get("nop")
    row = validated[task]
    if not (TASKS / task / "solution").exists():
        assert row["gold"]["reason"] == "unchecked"
    elif oracle is None:
        assert row["gold"]["reason"] == "error", row
    else:
        assert row["gold"]["reason"] == ("valid" if oracle >= 1 else "invalid"), row
    assert row["noop"]["reason"] == ("error" if nop is None else "valid"), row
    assert row["noop"]["reward"] == (None if nop is None else pytest.approx(nop))


@pytest.mark.frameworks
def test_both_frameworks_load_every_fixture(package: Path, harbor_python: Path, verifiers_python: Path) -> None:
    for format, python, folder in (("harbor", harbor_python, TASKS), ("verifiers", verifiers_python, package)):
        loaded = FORMATS[format].probe.load(python, folder)
        assert (sorted(loaded.tasks), loaded.errors) == (sorted(EXPECTED), ())


@pytest.mark.frameworks
def test_loading_writes_nothing_into_the_package(package: Path, verifiers_python: Path) -> None:
    before = snapshot(package)
    PROBE.load(verifiers_python, package)
    assert snapshot(package) == before


@pytest.mark.docker
@pytest.mark.frameworks
def test_tags_are_earned(package: Path, containers: set[str], harbor_python: Path, verifiers_python: Path) -> None:
    for folder, framework, release in ((TASKS, "harbor", "0.25.0"), (package, "verifiers", "0.4.0")):
        [result] = checking.check(folder, say=quiet)
        assert (result.framework, result.version, result.status) == (framework, release, "earned"), result.errors
        assert (result.tasks, result.loaded, result.errors) == (len(EXPECTED), len(EXPECTED), [])


@pytest.mark.docker
@pytest.mark.frameworks
def test_a_tag_is_not_earned_without_a_working_reference(
    tmp_path: Path, containers: set[str], harbor_python: Path
) -> None:
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
    tmp_path: Path, containers: set[str], verifiers_python: Path
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
    tmp_path: Path, containers: set[str], docker: str, verifiers_python: Path
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
    command = [str(verifiers_python.with_name("vf-eval")), "fixtures", "--env.agent.runtime.type", "podman"]
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

    tasks = Path("fixtures", "tasks")
    there, here = contents(tmp_path / "installed" / tasks), contents(package / tasks)
    reported = {
        f"{loss['task']}/{loss['field']}".encode()
        for loss in json.loads((package / "envconvert.json").read_text())["losses"]
        if loss["code"].startswith("wheel-")
    }
    assert there.keys() == here.keys()
    assert {path for path in here if there[path] != here[path]} <= reported
