"""The OpenEnv package: its names, what stands in it, what it says of its tasks, and that it is read back."""

import ast
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ENVIRONMENT, ROOT, TOML, archived, make_files, make_rows, make_task, run, run_json, snapshot

import envconvert
from envconvert.formats.openenv.writer import class_prefix, package_name

PACKAGE = ROOT / "formats" / "openenv" / "package"
RUNNER = ROOT / "formats" / "harbor" / "runner"
STEPS = '[[steps]]\nname = "one"\n'


def written(source: Path, target: Path, **options: Any) -> Path:
    [report] = envconvert.convert(source, target, to="openenv", **options)
    assert report.tasks.written > 0
    return target


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two tasks that are served and one that is not."""
    make_task(tmp_path / "src" / "one", f"{TOML}cpus = 2\nmemory_mb = 512\n[agent]\ntimeout_sec = 100\n")
    make_task(tmp_path / "src" / "two", f"{TOML}memory_mb = 4096\nstorage_mb = 100\n[agent]\ntimeout_sec = 50\n")
    make_task(tmp_path / "src" / "turns", TOML + STEPS, {"steps/one/instruction.md": "Do.\n"})
    return tmp_path / "src"


# Names, as OpenEnv forms them (openenv 0.10.0: cli/commands/init.py and auto/_discovery.py).


@pytest.mark.parametrize(
    ("name", "package", "prefix"),
    [
        ("org/demo", "demo_env", "Demo"),
        ("org/demo_env", "demo_env", "Demo"),
        ("org/My-Math", "my_math_env", "MyMath"),
        ("org/Terminal-Bench-2.1", "terminal_bench_2_1_env", "TerminalBench21"),
        ("org/2048", "env_2048_env", "Env2048"),
        ("org/class", "env_class_env", "EnvClass"),
        ("org/env", "env_env", "Env"),
    ],
)
def test_names(name: str, package: str, prefix: str) -> None:
    assert package_name(name) == package
    assert package.isidentifier()
    assert class_prefix(package) == prefix


@pytest.mark.parametrize("name", ["org/2048", "org/9to5", "org/class", "org/x" + "y" * 90, "org/a.b-c"])
def test_every_client_class_can_be_named(name: str) -> None:
    assert f"{class_prefix(package_name(name))}Env".isidentifier()


# What stands in the package.


def test_the_layout(source: Path, tmp_path: Path) -> None:
    out = written(source, tmp_path / "out", name="org/My-Set")
    assert sorted(os.listdir(out)) == [
        *(".dockerignore", "README.md", "__init__.py", "client.py", "envconvert.json", "models.py", "openenv.yaml"),
        *("pyproject.toml", "server", "tasks", "taskset.jsonl", "validation"),
    ]
    code = sorted(path.name for path in (PACKAGE / "server").glob("*.py"))
    assert sorted(os.listdir(out / "server")) == sorted([*code, "Dockerfile", "runner", "settings.json"])
    runner = {path.name: path.read_bytes() for path in RUNNER.glob("*.py")}
    assert {path.name: path.read_bytes() for path in (out / "server" / "runner").iterdir()} == runner
    assert snapshot(out / "tasks") == snapshot(source)


def test_the_code_is_the_template_as_it_stands(source: Path, tmp_path: Path) -> None:
    """The same for every taskset, but for the name of the client's class."""
    out = written(source, tmp_path / "out", name="org/set")
    other = written(source, tmp_path / "other", name="org/other")
    for path in PACKAGE.rglob("*.py"):
        assert (out / path.relative_to(PACKAGE)).read_bytes() == path.read_bytes()
    for name in ("client.py", "__init__.py"):
        text = (out / name).read_text()
        assert "SetEnv" in text
        assert text.replace("SetEnv", "OtherEnv") == (other / name).read_text()
    for path in out.rglob("*.py"):
        ast.parse(path.read_bytes())
    assert not list(out.rglob("*.jinja"))
    assert not list(out.rglob("__pycache__"))


def test_the_code_passes_the_linter(source: Path, tmp_path: Path) -> None:
    out = written(source, tmp_path / "out", name="org/set")
    for command in (["check"], ["format", "--check"]):
        options = ["--config", str(ROOT / "pyproject.toml"), "--no-cache", str(out)]
        done = subprocess.run([sys.executable, "-m", "ruff", *command, *options], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_the_clients_side_imports_nothing_of_the_servers(source: Path, tmp_path: Path) -> None:
    out = written(source, tmp_path / "out", name="org/set")
    local: set[str] = set()
    for name in ("__init__.py", "client.py", "models.py", "server/__init__.py", "server/models.py"):
        for node in ast.walk(ast.parse((out / name).read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                local.add(str(node.module))
    assert local == {"client", "models", "server.models"}


def test_manifest(source: Path, tmp_path: Path) -> None:
    make_files(source, {"dataset.toml": '[dataset]\nversion = "1.4"\ndescription = "Two: \\"tasks\\"\\u0007, # é."\n'})
    manifest = yaml.safe_load((written(source, tmp_path / "out", name="org/My-Set") / "openenv.yaml").read_bytes())
    assert (manifest["spec_version"], manifest["name"], manifest["version"]) == (1, "my_set_env", "1.4")
    assert manifest["description"] == 'Two: "tasks"\a, # é.'
    assert (manifest["app"], manifest["action"], manifest["observation"]) == (
        *("server.app:app", "ContainerAction", "ContainerObservation"),
    )
    validation = manifest["validation"]
    assert validation["reward"] == {"range": [0.0, 1.0], "oracle_tolerance": 0.0, "floor_margin": 0.1}
    # The largest of what the tasks say; an episode is the agent's time and the tests' 600 s, which is Harbor's default.
    assert validation["resources"] == {
        "cpu": 2,
        "memory_mb": 4096,
        "disk_mb": 100,
        "episode_timeout_s": 700.0,
        "gpus": 0,
    }
    assert validation["capabilities"]["declared_task_count"] == {"train": 2}
    assert validation["execution"]["dockerfile"] == "server/Dockerfile"
    assert json.loads((tmp_path / "out" / "validation" / "runtime.json").read_text()) == {
        "plan_schema_version": "1",
        "reset": {"episode_id": "validation", "seed": 0, "options": {"task_id": "one"}},
        "actions": [{"kind": "exec", "command": "pwd"}, {"kind": "submit"}],
    }


@pytest.mark.parametrize(
    ("limit", "declared"),
    [("", 3600), ("timeout_sec = 3000\n", 3600), ("timeout_sec = 3001\n", 3600), ("timeout_sec = 1\n", 601)],
)
def test_no_episode_is_declared_longer_than_the_hour_that_is_valid(limit: str, declared: int, tmp_path: Path) -> None:
    make_task(tmp_path / "src" / "one", f"{TOML}[agent]\n{limit}")
    manifest = yaml.safe_load((written(tmp_path / "src", tmp_path / "out") / "openenv.yaml").read_bytes())
    assert manifest["validation"]["resources"]["episode_timeout_s"] == declared


def test_pyproject(source: Path, tmp_path: Path) -> None:
    project = tomllib.loads((written(source, tmp_path / "out", name="org/My-Set") / "pyproject.toml").read_text())
    assert project["project"]["name"] == "openenv-my_set_env"
    assert project["project"]["dependencies"] == ["openenv>=0.10.0,<0.11", "pathspec>=0.12"]
    assert project["project"]["scripts"] == {"server": "my_set_env.server.app:main"}
    assert project["tool"]["setuptools"]["package-dir"] == {
        "my_set_env": ".",
        "my_set_env.server": "server",
        "my_set_env.server.runner": "server/runner",
    }
    assert project["tool"]["setuptools"]["packages"] == list(project["tool"]["setuptools"]["package-dir"])


def test_readme(source: Path, tmp_path: Path) -> None:
    text = (written(source, tmp_path / "out", name="org/My-Set", reward_key="accuracy") / "README.md").read_text()
    matter, _, rest = text.removeprefix("---\n").partition("\n---\n")
    assert yaml.safe_load(matter) == {"title": "org/My-Set", "sdk": "docker", "app_port": 8000, "tags": ["openenv"]}
    words = " ".join(rest.split())
    assert "3 container tasks for" in words
    assert "The server plays 2 of them" in words
    assert "-v /var/run/docker.sock:/var/run/docker.sock my_set-server" in words
    assert 'task_id="one"' in words
    assert "`train` (2)" in words
    assert "`/my_set_env/splits`" in words
    assert "The key `accuracy` is trained" in words
    assert "{{.Repository}}:{{.Tag}}" in words
    for left in ("{%", "{{ "):
        assert left not in text


def test_the_image_holds_what_the_server_needs_and_nothing_else(source: Path, tmp_path: Path) -> None:
    out = written(source, tmp_path / "out", name="org/set")
    kept = {line[1:] for line in (out / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [
        line.split()[1]
        for line in (out / "server" / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ") and "--from" not in line
    ]
    assert sorted(copied) == ["openenv.yaml", "server", "tasks"]
    assert set(copied) <= kept
    assert "taskset.jsonl" not in kept
    assert "*" in (out / ".dockerignore").read_text().splitlines()


@pytest.mark.parametrize(("image", "task"), [("debian:bookworm-slim", "one"), (None, "")])
def test_the_image_is_made_from_that_of_the_tasks(image: str | None, task: str, tmp_path: Path) -> None:
    toml = ENVIRONMENT if image else ""
    make_task(tmp_path / "src" / "one", toml, {"environment/Dockerfile": None if image else "FROM scratch\n"})
    make_task(
        tmp_path / "src" / "other",
        '[environment]\ndocker_image = "z:1"\n' if image else "",
        {"environment/Dockerfile": "FROM scratch\n"},
    )
    if image:
        make_task(tmp_path / "src" / "third", toml)
    text = (written(tmp_path / "src", tmp_path / "out") / "server" / "Dockerfile").read_text()
    assert f"ARG TASK_IMAGE={image or 'python:3.12-slim'}\n" in text
    assert f"ARG TASK={task}\n" in text


# What the task folders do not say.


def test_header_and_settings(source: Path, tmp_path: Path) -> None:
    make_files(
        source,
        {
            "dataset.toml": '[dataset]\nversion = "1"\ndescription = "Zoë\\nand more"\nkeywords = ["a"]\n'
            'authors = [{name = "Zoë", email = "z@b.c"}]\n'
        },
    )
    out = written(source, tmp_path / "out", name="org/My-Set", reward_key="accuracy")
    assert json.loads((out / "taskset.jsonl").read_text("utf-8")) == {
        "name": "org/My-Set",
        "version": "1",
        "description": "Zoë\nand more",
        "licence": None,
        "authors": [{"name": "Zoë", "email": "z@b.c"}],
        "keywords": ["a"],
        "reward_key": "accuracy",
        "sets": {},
    }
    assert json.loads((out / "server" / "settings.json").read_text("utf-8")) == {
        "taskset": "org/My-Set",
        "package": "my_set_env",
        "repository": "my_set",
        "reward_key": "accuracy",
        "splits": {},
        "left_out": [],
    }


def test_sets_become_splits_and_come_back(tmp_path: Path) -> None:
    rows = tmp_path / "src"
    make_rows(rows / "data" / "train.parquet", {"b": archived(), "a": archived()})
    make_rows(rows / "data" / "test.parquet", {"c": archived()})
    [report] = envconvert.convert(rows, tmp_path / "out", to="openenv")
    assert "sets-merged" not in {loss.code for loss in report.losses}
    assert report.tasks.written == 3
    splits = json.loads((tmp_path / "out" / "server" / "settings.json").read_text())["splits"]
    assert {name: sorted(ids) for name, ids in splits.items()} == {"train": ["a", "b"], "test": ["c"]}
    counts = yaml.safe_load((tmp_path / "out" / "openenv.yaml").read_bytes())["validation"]["capabilities"]
    assert counts["declared_task_count"] == {"train": 2, "test": 1}
    assert {name: sorted(ids) for name, ids in envconvert.read(tmp_path / "out").sets.items()} == {
        "train": ["a", "b"],
        "test": ["c"],
    }
    assert envconvert.read(tmp_path / "out", split="test").ids == ("c",)


# What is not served is there all the same.


def test_what_is_not_served_is_written_and_counted(source: Path, tmp_path: Path) -> None:
    [report] = envconvert.convert(source, tmp_path / "out", to="openenv")
    assert (report.tasks.written, report.tasks.lossless, report.tasks.degraded) == (3, 2, 1)
    assert [(loss.task, loss.code, loss.field) for loss in report.losses] == [("turns", "harness-only", "interaction")]


def test_a_package_of_which_nothing_is_served_is_written(tmp_path: Path) -> None:
    make_task(tmp_path / "src" / "turns", TOML + STEPS, {"steps/one/instruction.md": "Do.\n"})
    out = written(tmp_path / "src", tmp_path / "out")
    validation = yaml.safe_load((out / "openenv.yaml").read_bytes())["validation"]
    assert validation["capabilities"]["declared_task_count"] == {"train": 0}
    assert "execution" not in validation
    assert not (out / "validation").exists()
    assert "The server plays 0 of them" in (out / "README.md").read_text()


@pytest.mark.parametrize(
    ("toml", "field"),
    [
        (f'{TOML}network_mode = "allowlist"\nallowed_hosts = ["a.org"]\n', "container.network"),
        (f'{TOML}[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.org"]\n', "container.agent_network"),
        (f'{TOML}[verifier]\nnetwork_mode = "allowlist"\nallowed_hosts = ["10.0.0.0/8"]\n', "tests.network"),
        (f'{TOML}workdir = "app"\n', "container.workdir"),
        (f'{TOML}[environment.tpu]\ntype = "v5e"\ntopology = "2x2"\n', "container.tpu"),
        (f'{TOML}[verifier.environment.tpu]\ntype = "v5e"\ntopology = "2x2"\n', "tests.container.tpu"),
    ],
)
def test_what_only_harbor_plays(toml: str, field: str, tmp_path: Path) -> None:
    make_task(tmp_path / "src" / "one", toml)
    [report] = envconvert.convert(tmp_path / "src", tmp_path / "out", to="openenv")
    assert [(loss.code, loss.field) for loss in report.losses] == [("harness-only", field)]


@pytest.mark.parametrize(
    "toml",
    [
        f'{TOML}network_mode = "no-network"\n',
        f'{TOML}[verifier]\nnetwork_mode = "no-network"\n',
        f'{TOML}[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = []\n',
        f'{TOML}[verifier]\nenvironment_mode = "separate"\n',
        f"{TOML}gpus = 2\n",
    ],
)
def test_what_is_served_without_a_loss(toml: str, tmp_path: Path) -> None:
    make_task(tmp_path / "src" / "one", toml)
    [report] = envconvert.convert(tmp_path / "src", tmp_path / "out", to="openenv")
    assert report.losses == []
    assert report.tasks.lossless == 1


def test_one_loss_a_task_for_all_its_links(tmp_path: Path) -> None:
    task = make_task(tmp_path / "src" / "one")
    for name in ("a", "b", "c"):
        (task / "tests" / name).symlink_to("test.sh")
    [report] = envconvert.convert(tmp_path / "src", tmp_path / "out", to="openenv")
    assert [(loss.code, loss.field) for loss in report.losses] == [("validation-link", "tests/a")]
    [strict] = envconvert.convert(tmp_path / "src", tmp_path / "strict", to="openenv", strict=True)
    assert strict.tasks.refused == 1


# Reading it back.


@pytest.mark.parametrize("group", ["tasks", "features"])
def test_fixtures_come_back(group: str, tmp_path: Path) -> None:
    source = ROOT / "fixtures" / "harbor" / group
    [there] = envconvert.convert(source, tmp_path / "openenv", to="openenv", name=f"org/{group}")
    [back] = envconvert.convert(tmp_path / "openenv", tmp_path / "harbor", to="harbor")
    assert there.tasks.written == back.tasks.written == len(list(source.iterdir()))
    assert back.source.format == "openenv"
    assert snapshot(tmp_path / "harbor" / "tasks") == snapshot(source)


def test_the_package_says_what_it_is_of_itself(source: Path, tmp_path: Path) -> None:
    make_files(source, {"dataset.toml": '[dataset]\nversion = "7"\ndescription = "Said."\nkeywords = ["k"]\n'})
    out = written(source, tmp_path / "out", name="org/My-Set", reward_key="accuracy")
    taskset = envconvert.read(out)
    assert (taskset.source.format, taskset.name, taskset.version) == ("openenv", "org/My-Set", "7")
    assert (taskset.description, taskset.keywords, taskset.reward.key) == ("Said.", ("k",), "accuracy")
    assert taskset.ids == ("one", "turns", "two")
    assert run_json("inspect", out)["format"] == "openenv"


def test_the_same_input_gives_the_same_bytes(source: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        written(source, tmp_path / name, name="org/set")
    assert snapshot(tmp_path / "first") == snapshot(tmp_path / "second")


@pytest.mark.parametrize("header", ["", "{", '{"name": 1}', '{"name": "no slash"}'])
def test_a_package_with_a_bad_header(header: str, source: Path, tmp_path: Path) -> None:
    out = written(source, tmp_path / "out")
    (out / "taskset.jsonl").write_text(header)
    done = run("inspect", out)
    assert done.returncode == 4
    assert len(done.stderr.splitlines()) == 1
    assert "taskset.jsonl" in done.stderr
