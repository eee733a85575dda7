"""Terminal-Bench 1 folders: what becomes of each key and file, beside what Harbor's own migration makes of them."""

import json
import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import Files, ask, make_files, make_task, run, run_json, snapshot

import envconvert
from envconvert.formats.files import UnreadableSourceError
from envconvert.formats.losses import Ledger, Loss

PLAIN_COMPOSE = """
services:
  client:
    build:
      dockerfile: Dockerfile
    image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}
    container_name: ${T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME}
    command: ["sh", "-c", "sleep infinity"]
    environment:
      - TEST_DIR=${T_BENCH_TEST_DIR}
    volumes:
      - ${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}
      - ${T_BENCH_TASK_AGENT_LOGS_PATH}:${T_BENCH_CONTAINER_AGENT_LOGS_PATH}
"""
TASK_YAML = """
instruction: |-
  Write 42 to answer.txt.
author_name: Ann
author_email: ann@example.org
difficulty: easy
category: files
tags: [shell, files]
parser_name: pytest
max_agent_timeout_sec: 90
max_test_timeout_sec: 30.5
expert_time_estimate_min: 5
"""
FOLDER: Files = {
    "task.yaml": TASK_YAML,
    "docker-compose.yaml": PLAIN_COMPOSE,
    "Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n",
    "solution.sh": "#!/bin/bash\necho 42 > answer.txt\n",
    "run-tests.sh": '#!/bin/bash\nbash "$TEST_DIR/check.sh"\n',
    "tests/check.sh": "grep -q 42 answer.txt || exit 3\n",
    "data/input.csv": "1,2\n",
}


def make_bench(folder: Path, files: Files | None = None, **task: Any) -> Path:
    said = TASK_YAML + (yaml.safe_dump(task) if task else "")
    return make_files(folder, {**FOLDER, "task.yaml": said, **(files or {})})


def convert(source: Path, target: Path) -> tuple[Path, list[Loss]]:
    """The Harbor folders made of `source`, and the losses but for the one about build limits, which all have."""
    [report] = envconvert.convert(source, target, to="harbor")
    expected = ("limit-default", "package-unnamed")
    return target / "tasks", [loss for loss in report.losses if loss.code not in expected]


def refusal(folder: Path, files: Files | None = None, **task: Any) -> Loss:
    ledger = Ledger()
    assert list(envconvert.read(make_bench(folder / "t", files, **task)).tasks(ledger)) == []
    [loss] = ledger.losses
    return loss


def test_a_task(tmp_path: Path) -> None:
    tasks, losses = convert(make_bench(tmp_path / "s" / "one").parent, tmp_path / "out")
    assert losses == []
    folder = tasks / "one"
    assert (folder / "instruction.md").read_text() == "Write 42 to answer.txt."
    toml = tomllib.loads((folder / "task.toml").read_text())
    assert (toml["agent"]["timeout_sec"], toml["verifier"]["timeout_sec"]) == (90.0, 30.5)
    assert toml["metadata"] == {
        "author_name": "Ann",
        "author_email": "ann@example.org",
        "difficulty": "easy",
        "category": "files",
        "tags": ["shell", "files"],
        "expert_time_estimate_min": 5,
    }
    assert sorted(os.fsdecode(path) for path in snapshot(folder)) == [
        *("environment", "environment/Dockerfile", "environment/data", "environment/data/input.csv"),
        *("instruction.md", "solution", "solution/solve.sh", "task.toml"),
        *("tests", "tests/check.sh", "tests/run-tests.sh", "tests/test.sh"),
    ]
    assert (folder / "environment/Dockerfile").read_text().splitlines()[:2] == [
        "FROM debian:bookworm-slim",
        "WORKDIR /app",
    ]
    assert "ENV TEST_DIR=/tests\n" in (folder / "environment/Dockerfile").read_text()
    assert (folder / "solution/solve.sh").read_text() == FOLDER["solution.sh"]
    assert (folder / "tests/run-tests.sh").read_text() == FOLDER["run-tests.sh"]


def test_defaults_are_those_of_terminal_bench(tmp_path: Path) -> None:
    make_bench(tmp_path / "t", {"task.yaml": "instruction: Do.\n", "docker-compose.yaml": None})
    [task] = envconvert.read(tmp_path / "t").container_tasks()
    assert (task.limits.agent, task.limits.tests, task.limits.build) == (360.0, 60.0, None)
    assert (dict(task.metadata), task.prompt[0].text, task.id) == ({}, "Do.", "t")


def test_groups_and_order(tmp_path: Path) -> None:
    for name in ("b", "a/x", "tasks/c"):
        make_bench(tmp_path / name)
    make_files(tmp_path / "config", {"task.yaml": "no: task\n"})
    found = run_json("inspect", tmp_path)
    assert (found["format"], found["tasks"], found["containers"]["build"]) == ("terminal-bench", 3, 3)
    assert envconvert.read(tmp_path).ids == ("a--x", "b", "tasks--c")


def test_harbor_folders_come_first(tmp_path: Path) -> None:
    make_bench(tmp_path / "old")
    make_task(tmp_path / "new")
    assert envconvert.read(tmp_path).ids == ("new",)
    assert envconvert.read(tmp_path, format="terminal-bench").ids == ("old",)


def test_a_plain_service_becomes_lines_of_the_dockerfile(tmp_path: Path) -> None:
    service = {
        "build": "./client",
        "environment": {"PLAIN": "a b", "QUOTED": 'say "hi" \\ $$5', "FLAG": True, "HOST": "${HOST:-x}", "BARE": None},
        "working_dir": "/work",
        "expose": [80, "443"],
        "entrypoint": ["/start", "--now"],
        "platform": "linux/amd64",
    }
    files: Files = {
        "docker-compose.yaml": yaml.safe_dump({"services": {"agent": service}}, sort_keys=False),
        "client/Dockerfile": "FROM --platform=linux/arm64 debian AS base\nfrom base",
        "client/inside.txt": "1",
        "Dockerfile": None,
    }
    make_bench(tmp_path / "s" / "t", files)
    [task] = envconvert.read(tmp_path / "s").container_tasks()
    assert dict(task.container.env) == {"HOST": "${HOST:-x}", "BARE": "${BARE}"}
    tasks, losses = convert(tmp_path / "s", tmp_path / "out")
    assert losses == []
    assert sorted(os.fsdecode(path) for path in snapshot(tasks / "t/environment")) == ["Dockerfile", "inside.txt"]
    lines = (tasks / "t/environment/Dockerfile").read_text().splitlines()
    assert lines[:2] == ["FROM --platform=linux/amd64 debian AS base", "from --platform=linux/amd64 base"]
    assert lines[4:] == [
        "ENV TEST_DIR=/tests",
        'ENV PLAIN="a b"',
        'ENV QUOTED="say \\"hi\\" \\\\ \\$5"',
        'ENV FLAG="true"',
        "WORKDIR /work",
        "EXPOSE 80",
        "EXPOSE 443",
        'ENTRYPOINT ["/start", "--now"]',
    ]


def test_other_compose_files_are_carried_with_the_agents_service_as_main(tmp_path: Path) -> None:
    compose = {
        "services": {
            "client": {
                **yaml.safe_load(PLAIN_COMPOSE)["services"]["client"],
                "depends_on": ["db"],
                "environment": ["TEST_DIR=${T_BENCH_TEST_DIR}", "URL=http://${NAME}:80"],
            },
            "db": {
                "build": {"context": "db"},
                "container_name": "${T_BENCH_TASK_DOCKER_NAME_PREFIX}__db",
                "depends_on": {"client": {"condition": "service_started"}},
                "volumes": ["data:/data", "${T_BENCH_TASK_LOGS_PATH}:/logs"],
            },
            "seen": {"image": "x", "network_mode": "service:client", "links": ["client:c"]},
        },
        "volumes": {"data": {}},
    }
    files: Files = {"docker-compose.yaml": yaml.safe_dump(compose), "db/Dockerfile": "FROM debian\n"}
    tasks, losses = convert(make_bench(tmp_path / "s" / "t", files).parent, tmp_path / "out")
    assert losses == []
    environment = tasks / "t" / "environment"
    assert yaml.safe_load((environment / "docker-compose.yaml").read_text()) == {
        "services": {
            "main": {
                "depends_on": ["db"],
                "environment": {"URL": "http://${NAME}:80"},
                "networks": {"default": {"aliases": ["client"]}},
            },
            "db": {
                "build": {"context": "db"},
                "depends_on": {"main": {"condition": "service_started"}},
                "volumes": ["data:/data"],
            },
            "seen": {"image": "x", "network_mode": "service:main", "links": ["main:c"]},
        },
        "volumes": {"data": {}},
    }
    assert (environment / "db" / "Dockerfile").is_file()
    assert "ENV TEST_DIR=/tests" in (environment / "Dockerfile").read_text()


def test_an_image_without_a_dockerfile(tmp_path: Path) -> None:
    files: Files = {"Dockerfile": None, "docker-compose.yaml": "services: {client: {image: 'debian:12'}}\n"}
    tasks, _ = convert(make_bench(tmp_path / "s" / "t", files).parent, tmp_path / "out")
    assert (tasks / "t/environment/Dockerfile").read_text().startswith("FROM debian:12\n")


@pytest.mark.parametrize(
    ("code", "field", "files", "task"),
    [
        ("parser-dropped", "parser_name", {}, {"parser_name": "swebench"}),
        ("same-shell", "run_tests_in_same_shell", {}, {"run_tests_in_same_shell": True}),
        ("solution-keys", "solution.yaml", {"solution.sh": None, "solution.yaml": "- command: x\n"}, {}),
        ("reference-missing", "solution.sh", {"solution.sh": None}, {}),
        ("task-key", "disable_asciinema", {}, {"disable_asciinema": True}),
        ("task-value", "when", {}, {"when": {1: "a number"}}),
        ("image-reveals", "Dockerfile", {"Dockerfile": "FROM x\nCOPY tests /tests\n"}, {}),
        ("image-reveals", "Dockerfile", {"Dockerfile": "FROM x\nADD a ./solution.sh /\n"}, {}),
        (
            "harness-variable",
            "services.client.labels",
            {"docker-compose.yaml": "services: {client: {build: ., labels: ['${T_BENCH_X}']}}\n"},
            {},
        ),
    ],
)
def test_what_is_lost_is_said(tmp_path: Path, code: str, field: str, files: Files, task: dict[str, Any]) -> None:
    _, losses = convert(make_bench(tmp_path / "s" / "t", files, **task).parent, tmp_path / "out")
    assert [(loss.code, loss.field) for loss in losses] == [(code, field)]


def test_tests_and_solution_are_not_in_the_image(tmp_path: Path) -> None:
    files: Files = {"Dockerfile": "FROM debian\nCOPY . /app\n", "solution.yaml": "x"}
    tasks, _ = convert(make_bench(tmp_path / "s" / "t", files).parent, tmp_path / "out")
    found = {os.fsdecode(path) for path in snapshot(tasks / "t" / "environment")}
    assert found == {"Dockerfile", "data", "data/input.csv"}


ALIASES = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
)


@pytest.mark.parametrize(
    ("code", "files"),
    [
        ("yaml-invalid", {"task.yaml": "a: ["}),
        ("yaml-invalid", {"task.yaml": "- list\n"}),
        ("yaml-invalid", {"task.yaml": b"\xff"}),
        ("yaml-invalid", {"task.yaml": ALIASES}),
        ("yaml-invalid", {"task.yaml": "a: " + "[" * 10000}),
        ("yaml-invalid", {"task.yaml": "a: " + "x" * (1 << 20)}),
        ("yaml-invalid", {"task.yaml": "a: !!python/object/apply:os.system ['false']\n"}),
        ("yaml-invalid", {"task.yaml": "a: 2026-99-99\n"}),
        ("yaml-invalid", {"docker-compose.yaml": ALIASES}),
        ("yaml-value", {"task.yaml": "author_name: Ann\n"}),
        ("yaml-value", {"task.yaml": "instruction: [1]\n"}),
        ("yaml-value", {"task.yaml": "instruction: x\nmax_agent_timeout_sec: soon\n"}),
        ("yaml-value", {"docker-compose.yaml": "services: []\n"}),
        ("yaml-value", {"docker-compose.yaml": "services: {client: {build: ../elsewhere}}\n"}),
        ("yaml-value", {"docker-compose.yaml": "services: {client: {build: /etc}}\n"}),
        ("yaml-value", {"docker-compose.yaml": "services: {client: {build: ., environment: text}}\n"}),
        ("container-missing", {"docker-compose.yaml": None, "Dockerfile": None}),
        ("container-missing", {"docker-compose.yaml": "services: {c: {build: {dockerfile: ../Dockerfile}}}\n"}),
        ("container-missing", {"docker-compose.yaml": "services: {c: {build: elsewhere}}\n"}),
        ("dockerfile-encoding", {"Dockerfile": b"FROM x\n# \xe9\n"}),
        ("tests-missing", {"run-tests.sh": None}),
        ("place-taken", {"tests/test.sh": ""}),
        ("place-taken", {"tests/run-tests.sh": ""}),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, code: str, files: Files) -> None:
    assert refusal(tmp_path, files).code == code


def test_a_link_out_of_the_task_is_refused(tmp_path: Path) -> None:
    (make_bench(tmp_path / "t") / "data" / "out").symlink_to("../../secret")
    ledger = Ledger()
    assert list(envconvert.read(tmp_path / "t").tasks(ledger)) == []
    assert [loss.code for loss in ledger.losses] == ["link-outside"]


def test_the_source_is_not_changed(tmp_path: Path) -> None:
    source = make_bench(tmp_path / "s" / "t").parent
    before = snapshot(source)
    convert(source, tmp_path / "out")
    assert snapshot(source) == before


def test_it_is_not_written(tmp_path: Path) -> None:
    make_bench(tmp_path / "t")
    done = run("convert", tmp_path / "t", tmp_path / "out", "--to", "terminal-bench")
    assert (done.returncode, "harbor, verifiers" in done.stderr) == (2, True)
    assert "terminal-bench" not in run("convert", "--help").stdout.partition("--to")[2].partition("--from")[0]
    [entry] = [entry for entry in run_json("formats") if entry["name"] == "terminal-bench"]
    assert (entry["writes"], entry["holds"], entry["refuses"], entry["tag"]) == (False, [], [], None)
    for arguments in (("check", tmp_path / "t"), ("parity", tmp_path / "t", tmp_path)):
        assert run(*arguments).returncode == 4


def test_the_arrow(tmp_path: Path) -> None:
    make_bench(tmp_path / "s" / "t")
    assert run("terminal-bench->harbor", tmp_path / "s", tmp_path / "a").returncode == 0
    assert run("terminal-bench-to-verifiers", tmp_path / "s", tmp_path / "b").returncode == 0


def test_it_has_no_datasets(tmp_path: Path) -> None:
    make_bench(tmp_path / "t")
    with pytest.raises(UnreadableSourceError, match="--dataset"):
        envconvert.read(tmp_path / "t", dataset="x")


# Beside Harbor's own migration.

MIGRATED: dict[str, Files] = {
    "plain": {},
    "shorthand": {"docker-compose.yaml": "services: {client: {build: .}}\n"},
    "variables": {
        "docker-compose.yaml": "services:\n  app:\n    build: .\n    working_dir: /srv\n    environment: [LEVEL=3]\n"
    },
    "fails": {"run-tests.sh": "#!/bin/bash\nfalse\n"},
    "two lines": {"run-tests.sh": '#!/bin/bash\ncd /\ntest -f "$TEST_DIR/check.sh"\n'},
}

LOAD = """
import json, sys
from harbor.models.task.task import Task
read = lambda folder: Task(folder)
answers = {}
for name, (ours, theirs) in json.load(sys.stdin).items():
    ours, theirs = Task(ours), Task(theirs)
    same = [
        ours.instruction.strip() == theirs.instruction.strip(),
        ours.config.agent == theirs.config.agent,
        ours.config.verifier == theirs.config.verifier,
        {k: v for k, v in theirs.config.metadata.items() if v is not None} == ours.config.metadata,
    ]
    answers[name] = same
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, harbor_python: Path) -> tuple[Path, Path]:
    """What envconvert and `harbor task migrate` make of the same folders."""
    work = tmp_path_factory.mktemp("migrated")
    for name, files in MIGRATED.items():
        make_bench(work / "source" / name.replace(" ", "-"), files)
    envconvert.convert(work / "source", work / "ours", to="harbor")
    harbor = str(harbor_python.with_name("harbor"))
    command = [harbor, "task", "migrate", "-i", str(work / "source"), "-o", str(work / "theirs")]
    done = subprocess.run(
        command, env={**os.environ, "HARBOR_TELEMETRY": "0"}, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    return work / "ours" / "tasks", work / "theirs"


def test_harbors_migration_says_the_same(both: tuple[Path, Path], harbor_python: Path) -> None:
    ours, theirs = both
    names = [name.replace(" ", "-") for name in MIGRATED]
    answers = ask(harbor_python, LOAD, {name: [str(ours / name), str(theirs / name)] for name in names})
    assert answers == {name: [True] * 4 for name in names}
    for name in names:
        lines = [(folder / name / "environment/Dockerfile").read_text().replace('"', "") for folder in both]
        kept = [[line for line in text.splitlines() if line and not line.startswith("#")] for text in lines]
        assert kept[0] == kept[1]
        for path in ("solution/solve.sh", "tests/check.sh", "environment/data/input.csv"):
            assert (ours / name / path).read_bytes() == (theirs / name / path).read_bytes()


@pytest.mark.docker
@pytest.mark.parametrize("agent", ["oracle", "nop"])
@pytest.mark.parametrize("name", ["plain", "variables", "fails"])
def test_harbors_migration_scores_the_same(
    name: str, agent: str, both: tuple[Path, Path], harbor_python: Path, docker: str, tmp_path: Path
) -> None:
    rewards = []
    for side, folder in zip(("ours", "theirs"), both, strict=True):
        harbor = str(harbor_python.with_name("harbor"))
        command = [harbor, "run", "-p", str(folder / name), "-a", agent, "-o", str(tmp_path)]
        done = subprocess.run(
            [*command, "--job-name", side, "-q", "-y"],
            env={**os.environ, "HARBOR_TELEMETRY": "0"},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        [result] = tmp_path.glob(f"{side}/*/result.json") or [done.stderr]
        assert isinstance(result, Path), result
        rewards.append(json.loads(result.read_bytes())["verifier_result"]["rewards"]["reward"])
    assert rewards[0] == rewards[1]
    assert rewards[0] == (1.0 if agent == "oracle" and name != "fails" else 0.0)
