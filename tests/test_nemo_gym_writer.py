"""The Gym root: its names, what stands in it, what a row says, and that it is read back."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from conftest import ENVIRONMENT, NAMED, ROOT, TOML, archived, make_files, make_rows, make_task, snapshot

import envconvert
from envconvert.environments import _as_python
from envconvert.formats.catalogue import FORMATS
from envconvert.formats.files import Target
from envconvert.formats.losses import Ledger
from envconvert.formats.probe import Framework
from envconvert.formats.repository import SharedTasks
from envconvert.formats.taskset import Author

PACKAGE = ROOT / "formats" / "nemo_gym" / "package"
RUNNER = ROOT / "formats" / "harbor" / "runner"
TURNS = f'[task]\nname = "org/turns"\n{ENVIRONMENT}[[steps]]\nname = "one"\n'
STEP_FILES = {"instruction.md": None, "steps/one/instruction.md": "Do.\n"}
LIMITED = f"{TOML}[agent]\ntimeout_sec = 60\n"


def written(source: Path, target: Path, **options: Any) -> Path:
    [report] = envconvert.convert(source, target, to="nemo-gym", **options)
    assert report.tasks.written > 0
    return target


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def config(root: Path, name: str) -> Any:
    return yaml.safe_load((root / "environments" / name / "config.yaml").read_text("utf-8"))


def manifest(root: Path, name: str) -> Any:
    return yaml.safe_load((root / "environments" / name / "manifest.yaml").read_text("utf-8"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two tasks that the server plays and one that it does not."""
    make_task(tmp_path / "src" / "one", LIMITED)
    make_task(tmp_path / "src" / "two", LIMITED, {"instruction.md": "Schreib „Größe“.\n"})
    make_task(tmp_path / "src" / "turns", TURNS, STEP_FILES)
    return tmp_path / "src"


def test_the_layout(source: Path, tmp_path: Path) -> None:
    out = written(source, tmp_path / "out", name="org/My-Set")
    found = ["README.md", "envconvert.json", "environments", "resources_servers", "tasks", "taskset.jsonl"]
    assert sorted(os.listdir(out)) == found  # no pyproject.toml: Gym would install its servers otherwise
    assert sorted(os.listdir(out / "environments")) == ["my_set", "my_set_harbor"]
    for name in ("my_set", "my_set_harbor"):
        assert sorted(os.listdir(out / "environments" / name)) == ["config.yaml", "data", "manifest.yaml"]
        assert os.listdir(out / "environments" / name / "data") == ["train.jsonl"]
    server = out / "resources_servers" / "my_set"
    assert sorted(os.listdir(server)) == ["app.py", "requirements.txt", "task_data.py", "taskset_server"]
    assert snapshot(out / "tasks") == snapshot(source)


def test_the_code_is_the_template_as_it_stands(source: Path, tmp_path: Path) -> None:
    server = written(source, tmp_path / "out", name="org/set") / "resources_servers" / "set"
    for folder, template in (
        (server, PACKAGE),
        (server / "taskset_server", PACKAGE / "taskset_server"),
        (server / "taskset_server" / "runner", RUNNER),
    ):
        found = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        wanted = [*template.glob("*.py"), *template.glob("*.txt")]
        assert found == {path.name: path.read_bytes() for path in wanted}
        assert found


def test_a_row_says_the_prompt_the_tool_and_the_id(source: Path, tmp_path: Path) -> None:
    out = written(source, tmp_path / "out", name="org/set")
    found = rows(out / "environments" / "set" / "data" / "train.jsonl")
    assert [row["task_id"] for row in found] == ["one", "two"]
    for row in found:
        assert list(row) == ["responses_create_params", "task_id"]
        assert sorted(row["responses_create_params"]) == ["input", "tools"]
        [message] = row["responses_create_params"]["input"]
        assert (message["type"], message["role"]) == ("message", "user")
        [tool] = row["responses_create_params"]["tools"]
        assert sorted(tool) == ["description", "name", "parameters", "strict", "type"]
        assert (tool["type"], tool["name"], tool["strict"]) == ("function", "bash", True)
    assert found[0]["responses_create_params"]["input"][0]["content"] == "Write 42 to answer.txt.\n"
    assert found[1]["responses_create_params"]["input"][0]["content"] == "Schreib „Größe“.\n"


def test_pointer_rows_name_every_task(source: Path, tmp_path: Path) -> None:
    out = written(source, tmp_path / "out", name="org/set")
    assert rows(out / "environments" / "set_harbor" / "data" / "train.jsonl") == [
        {"responses_create_params": {"input": []}, "task_id": id, "task_name": id} for id in ("one", "turns", "two")
    ]
    agent = config(out, "set_harbor")["set_harbor_agent"]["responses_api_agents"]["harbor_agent_general"]
    assert agent["harbor_dataset"] == {"path": "${oc.env:NEMO_GYM_EXTRA_ROOTS}/tasks"}
    assert agent["harbor_reward_key"] == "reward"


def test_the_config_and_the_manifest_agree(source: Path, tmp_path: Path) -> None:
    out = written(source, tmp_path / "out", name="org/set", reward_key="accuracy")
    found = config(out, "set")
    assert sorted(found) == ["set_agent", "set_resources_server"]  # Gym has one namespace for every instance
    agent = found["set_agent"]["responses_api_agents"]["simple_agent"]
    assert agent["resources_server"] == {"type": "resources_servers", "name": "set_resources_server"}
    [dataset] = agent["datasets"]
    assert dataset == {
        "name": "train",
        "type": "train",
        "jsonl_fpath": "environments/set/data/train.jsonl",
        "license": "TBD",
    }
    about = manifest(out, "set")
    del dataset["license"]
    assert about["datasets"] == [{**dataset, "num_repeats": 1}]
    assert (about["resources_server"], about["agent_server"]) == ("set", "simple_agent")
    assert manifest(out, "set_harbor")["resources_server"] is None
    assert json.loads((out / "taskset.jsonl").read_text())["reward_key"] == "accuracy"


@pytest.mark.parametrize(
    ("licence", "listed", "spdx", "noted"),
    [
        ("apache-2.0", "Apache 2.0", "Apache-2.0", False),
        ("MIT", "MIT", "MIT", False),
        ("CC-BY-4.0", "Creative Commons Attribution 4.0 International", "CC-BY-4.0", False),
        ("BSD-3-Clause", "TBD", "BSD-3-Clause", True),
        ("ask me", "TBD", "unknown", True),
        (None, "TBD", "unknown", False),
    ],
)
def test_licences(source: Path, tmp_path: Path, licence: str | None, listed: str, spdx: str, noted: bool) -> None:
    authors = (Author(name="A"), Author(name="A", email="a@example.org"), Author(name="B"))
    taskset = msgspec.structs.replace(envconvert.read(source, name="org/set"), licence=licence, authors=authors)
    ledger = Ledger()
    FORMATS["nemo-gym"].write(taskset, Target(tmp_path / "out"), ledger)
    agent = config(tmp_path / "out", "set")["set_agent"]["responses_api_agents"]["simple_agent"]
    assert agent["datasets"][0]["license"] == listed
    about = manifest(tmp_path / "out", "set")
    assert (about["licensing"], about["authors"]) == (spdx, ["A", "B"])
    found = [loss for loss in ledger.losses if loss.code == "licence-unlisted"]
    assert [(loss.task, loss.severity, loss.field) for loss in found] == [("", "note", "licence")] * noted
    assert envconvert.read(tmp_path / "out").licence == licence


def test_sets_become_datasets_and_come_back(tmp_path: Path) -> None:
    make_rows(tmp_path / "src" / "data" / "train.parquet", {"b": archived(), "a": archived()})
    make_rows(tmp_path / "src" / "data" / "test.parquet", {"c": archived()})
    [report] = envconvert.convert(tmp_path / "src", tmp_path / "out", to="nemo-gym", name="org/set")
    assert "sets-merged" not in {loss.code for loss in report.losses}
    [noted] = [loss for loss in report.losses if loss.code == "set-type"]
    assert "'test'" in noted.message
    assert "validation" in noted.message
    out = tmp_path / "out"
    for name, agent in (("set", "simple_agent"), ("set_harbor", "harbor_agent_general")):
        datasets = config(out, name)[f"{name}_agent"]["responses_api_agents"][agent]["datasets"]
        found = {(dataset["name"], dataset["type"]): rows(out / dataset["jsonl_fpath"]) for dataset in datasets}
        ids = {key: sorted(row["task_id"] for row in lines) for key, lines in found.items()}
        assert ids == {("train", "train"): ["a", "b"], ("test", "validation"): ["c"]}
    assert {name: sorted(ids) for name, ids in envconvert.read(out).sets.items()} == {
        "train": ["a", "b"],
        "test": ["c"],
    }
    assert envconvert.read(out, split="test").ids == ("c",)


def test_tasks_of_no_set_are_in_a_dataset_of_their_own(source: Path, tmp_path: Path) -> None:
    entries = [{"name": "one", "path": "one"}]
    registry = [{"name": "mini", "version": "1", "description": "", "tasks": entries}]
    make_files(source, {"registry.json": json.dumps(registry)})
    out = written(source, tmp_path / "out", name="org/set")
    datasets = config(out, "set_harbor")["set_harbor_agent"]["responses_api_agents"]["harbor_agent_general"]["datasets"]
    found = {dataset["name"]: [row["task_id"] for row in rows(out / dataset["jsonl_fpath"])] for dataset in datasets}
    assert found == {"mini@1": ["one"], "unassigned": ["turns", "two"]}
    assert all(Path(dataset["jsonl_fpath"]).stem.isidentifier() for dataset in datasets)


def test_what_the_server_does_not_play_is_told(source: Path, tmp_path: Path) -> None:
    [report] = envconvert.convert(source, tmp_path / "out", to="nemo-gym")
    told = {loss.code: (loss.task, loss.severity) for loss in report.losses}
    assert told["passed-through"] == ("turns", "degraded")
    assert told["steps-last"] == ("turns", "degraded")
    assert report.tasks.degraded == 1
    assert (tmp_path / "out" / "tasks" / "turns" / "task.toml").is_file()


def test_steps_whose_reward_is_the_last_lose_nothing_of_it(tmp_path: Path) -> None:
    make_task(tmp_path / "src" / "turns", f'multi_step_reward_strategy = "final"\n{TURNS}', STEP_FILES)
    [report] = envconvert.convert(tmp_path / "src", tmp_path / "out", to="nemo-gym")
    assert [loss.code for loss in report.losses] == ["passed-through"]


@pytest.mark.parametrize(
    ("folder", "name", "told"),
    [
        ("turns", '[task]\nname = "org/turns"\n', False),
        ("turns", "", False),
        ("other", NAMED, True),
        ("a[b]", "", True),
    ],
)
def test_a_name_by_which_gym_would_not_find_the_result(tmp_path: Path, folder: str, name: str, told: bool) -> None:
    """harbor_agent_general looks for the result of `task_name` by [task].name, and for the folder by a pattern."""
    toml = f'{name}{ENVIRONMENT}[[steps]]\nname = "one"\n'
    make_task(tmp_path / "src" / folder, toml, STEP_FILES)
    [report] = envconvert.convert(tmp_path / "src", tmp_path / "out", to="nemo-gym")
    assert ("harbor-name" in {loss.code for loss in report.losses}) == told


def test_without_a_task_for_the_server_there_is_none(tmp_path: Path) -> None:
    make_task(tmp_path / "src" / "turns", TURNS, STEP_FILES)
    out = written(tmp_path / "src", tmp_path / "out", name="org/set")
    assert os.listdir(out / "environments") == ["set_harbor"]
    assert not (out / "resources_servers").exists()
    assert envconvert.read(out).ids == ("turns",)


@pytest.mark.parametrize(
    ("toml", "files", "field"),
    [
        ("", {"environment/docker-compose.yaml": "services: {main: {}}\n"}, "container.build.compose"),
        ("", {"trajectory.json": '{"steps": []}'}, "interaction.resumes"),
        ('os = "windows"\n', {"tests/test.bat": ""}, "container.os"),
        ('[environment.tpu]\ntype = "v5e"\ntopology = "2x2"\n', {}, "container.tpu"),
        ('network_mode = "allowlist"\nallowed_hosts = ["10.0.0.0/8"]\n', {}, "container.network"),
        ('workdir = "app"\n', {}, "container.workdir"),
        ('[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["pypi.org"]\n', {}, "container.agent_network"),
        ('[verifier]\nnetwork_mode = "allowlist"\nallowed_hosts = ["pypi.org"]\n', {}, "tests.network"),
    ],
)
def test_passed_through(tmp_path: Path, toml: str, files: dict[str, str], field: str) -> None:
    make_task(tmp_path / "src" / "task", NAMED + ENVIRONMENT + toml, files)
    [plan] = envconvert.convert(tmp_path / "src", tmp_path / "out", to="nemo-gym")
    assert [loss.field for loss in plan.losses if loss.code == "passed-through"] == [field]
    assert plan.tasks.written == 1
    assert not (tmp_path / "out" / "resources_servers").exists()


def test_a_closed_network_is_served(tmp_path: Path) -> None:
    make_task(tmp_path / "src" / "task", f'{TOML}network_mode = "no-network"\n[agent]\ntimeout_sec = 60\n')
    [report] = envconvert.convert(tmp_path / "src", tmp_path / "out", to="nemo-gym")
    assert report.losses == []


def test_there_and_back(source: Path, tmp_path: Path) -> None:
    out = written(source, tmp_path / "out", name="org/set")
    assert next(name for name, format in FORMATS.items() if format.reader.detect(out)) == "nemo-gym"
    [report] = envconvert.convert(out, tmp_path / "back", to="harbor")
    assert report.source.format == "nemo-gym"
    assert snapshot(tmp_path / "back" / "tasks") == snapshot(source)


def test_beside_other_formats(source: Path, tmp_path: Path) -> None:
    """The tasks stand in the folder above, and one of them is there for others only."""
    taskset = envconvert.read(source, name="org/set")
    place = tmp_path / "repository" / "nemo_gym"
    writer = FORMATS["nemo-gym"].writer()
    listed = [writer.listed(task, taskset, Target(tmp_path / "any"), Ledger()) for task in taskset if task.id != "two"]
    writer.write_rest(taskset, Target(place), Ledger(), listed, SharedTasks(left_out=("two",)))
    os.rename(source, tmp_path / "repository" / "tasks")
    assert sorted(os.listdir(place)) == ["environments", "resources_servers", "taskset.jsonl"]
    agent = config(place, "set_harbor")["set_harbor_agent"]["responses_api_agents"]["harbor_agent_general"]
    assert agent["harbor_dataset"] == {"path": "${oc.env:NEMO_GYM_EXTRA_ROOTS}/../tasks"}
    assert [row["task_id"] for row in rows(place / "environments/set_harbor/data/train.jsonl")] == ["one", "turns"]
    assert FORMATS["nemo-gym"].reader.detect(place)
    assert envconvert.read(place, format="nemo-gym").ids == ("one", "turns")


def test_the_readme_names_what_is_there(source: Path, tmp_path: Path) -> None:
    out = written(source, tmp_path / "out", name="org/set")
    text = (out / "README.md").read_text("utf-8")
    assert "3 container tasks" in text
    assert "2 of them are played by the server" in text
    assert "gym eval run --environment set " in text
    assert "environments/set_harbor" in text


@pytest.mark.parametrize(
    ("asked", "version", "options"),
    [
        ("3.13.14", (3, 13, 0), ["--python-version", "3.13.14"]),
        ("3.13.14", (3, 13, 14), []),
        ("3.13.14", (3, 13, 20), []),
        (None, (3, 11, 0), []),
    ],
)
def test_an_older_patch_release_is_told_to_pip(asked: str | None, version: tuple[int, ...], options: list[str]) -> None:
    framework = Framework(name="x", requirement="x==1", python=(3, 11), megabytes=1, asks_python=asked)
    assert _as_python(framework, version) == options
