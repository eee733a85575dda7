"""Publish: one repository for several frameworks, its card, its rows, and what becomes of it when published again."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import (
    NAMED,
    ROOT,
    TOML,
    archived,
    gate,
    interpreter_of,
    make_files,
    make_rows,
    make_task,
    run,
    run_json,
    snapshot,
)
from huggingface_hub import DatasetCard
from pyarrow import parquet

import envconvert
from envconvert import checking, publishing, scoring
from envconvert.formats.catalogue import FORMATS, Format
from envconvert.formats.files import digest_of, walk
from envconvert.formats.names import TARGETS
from envconvert.formats.probe import Agent, Framework, Loaded, Score
from envconvert.formats.verifiers.stand_in import stand_in
from envconvert.report import Check, RepositoryReport

BOTH = ("harbor", "verifiers")
TPU = TOML + '[environment.tpu]\ntype = "v6e"\ntopology = "2x2"\n'
"""Of Harbor's, and refused by Verifiers."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    make_task(tmp_path / "src" / "one")
    make_task(tmp_path / "src" / "two")
    return tmp_path / "src"


def publish(source: Path, target: Path, **options: Any) -> RepositoryReport:
    """Publish for two frameworks that are not asked."""
    return envconvert.publish(source, target, **{"to": BOTH, "claim": BOTH, "name": "org/set", "say": quiet, **options})


def quiet(line: str) -> None:
    """Progress that nobody reads."""


def header(folder: Path) -> Any:
    """What the Hub\'s client reads of the card: a `DatasetCardData`, whose attributes are the keys."""
    return DatasetCard.load(folder / "README.md").data


def rows(folder: Path, split: str = "train") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = parquet.read_table(folder / "data" / f"{split}-00000-of-00001.parquet").to_pylist()
    return found


def add_text(card: Path, before: str, after: str) -> None:
    """What an owner does: a text before our section, and one after it."""
    _, top, rest = card.read_text("utf-8").split("---\n", 2)
    card.write_text(f"---\n{top}---\n{before}{rest}{after}", "utf-8")


# What is written.


def test_the_tree(source: Path, tmp_path: Path) -> None:
    report = publish(source, tmp_path / "out")
    entries = ["README.md", "data", "dataset.toml", "envconvert.json", "registry.json", "tasks", "verifiers"]
    assert sorted(os.listdir(tmp_path / "out")) == entries == report.entries
    assert snapshot(tmp_path / "out" / "tasks") == snapshot(source)
    assert not (tmp_path / "out" / "verifiers" / "set" / "tasks").exists()
    assert sorted(os.listdir(tmp_path / "out" / "verifiers")) == ["README.md", "pyproject.toml", "set"]


def test_the_report(source: Path, tmp_path: Path) -> None:
    report = publish(source, tmp_path / "out")
    document = json.loads((tmp_path / "out" / "envconvert.json").read_text("utf-8"))
    assert document["target"]["formats"] == ["harbor", "verifiers"]
    whole = {"read": 2, "written": 2, "lossless": 2, "degraded": 0, "refused": 0}
    assert document["tasks"] == whole
    assert document["by_format"] == {"harbor": whole, "verifiers": whole}
    assert report.exit_code == 0
    (tmp_path / "out" / "envconvert.json").unlink()
    assert str(digest_of(walk(tmp_path / "out"))) == document["target"]["digest"]


def test_processes_change_nothing(source: Path, tmp_path: Path) -> None:
    for number in range(5):
        make_task(
            source / f"task-{number}",
            TPU if number % 2 else TOML + f'network_mode = "no-network"\ncpus = {number + 1}\n',
        )
    publish(source, tmp_path / "one", jobs=1)
    publish(source, tmp_path / "three", jobs=3)
    assert snapshot(tmp_path / "one") == snapshot(tmp_path / "three")


def test_a_row_of_the_viewer(tmp_path: Path) -> None:
    toml = """
[task]
name = "org/task"
[metadata]
difficulty = "hard"
category = "games"
tags = ["chess", "search"]
[agent]
timeout_sec = 90
[verifier]
timeout_sec = 30.5
[environment]
docker_image = "debian:bookworm-slim"
cpus = 2
memory_mb = 512
network_mode = "no-network"
"""
    make_task(tmp_path / "src" / "mate", toml)
    publish(tmp_path / "src", tmp_path / "out")
    assert rows(tmp_path / "out") == [
        {
            "id": "mate",
            "split": "train",
            "sets": [],
            "prompt": "Write 42 to answer.txt.\n",
            "steps": 1,
            "reward": "script",
            "reward_key": "reward",
            "container": "image",
            "image": "debian:bookworm-slim",
            "difficulty": "hard",
            "category": "games",
            "tags": ["chess", "search"],
            "agent_seconds": 90.0,
            "tests_seconds": 30.5,
            "cpus": 2.0,
            "memory_mb": 512,
            "storage_mb": None,
            "gpus": None,
            "network": "no-network",
            "has_reference": True,
            "frameworks": ["harbor", "verifiers"],
            "path": "tasks/mate",
        }
    ]


def test_sets_that_divide_the_tasks_are_splits(tmp_path: Path) -> None:
    for split, names in {"train": ("a", "b"), "test": ("c",)}.items():
        make_rows(tmp_path / "src" / f"{split}.parquet", {name: archived() for name in names})
    publish(tmp_path / "src", tmp_path / "out")
    assert sorted(os.listdir(tmp_path / "out" / "data")) == [
        "test-00000-of-00001.parquet",
        "train-00000-of-00001.parquet",
    ]
    assert {split: [row["id"] for row in rows(tmp_path / "out", split)] for split in ("train", "test")} == {
        "train": ["a", "b"],
        "test": ["c"],
    }
    [config] = header(tmp_path / "out").configs
    assert sorted(config["data_files"], key=lambda item: item["split"]) == [
        {"split": "test", "path": "data/test-*.parquet"},
        {"split": "train", "path": "data/train-*.parquet"},
    ]


def test_sets_that_overlap_are_a_column(source: Path, tmp_path: Path) -> None:
    def listed(*names: str) -> list[dict[str, str]]:
        return [{"name": name, "path": name} for name in names]

    registry = [
        {"name": "all", "version": "1", "description": "", "tasks": listed("one", "two")},
        {"name": "few", "version": "1", "description": "", "tasks": listed("two")},
    ]
    make_files(source, {"registry.json": json.dumps(registry)})
    publish(source, tmp_path / "out")
    assert [(row["id"], row["split"], row["sets"]) for row in rows(tmp_path / "out")] == [
        ("one", "train", ["all@1"]),
        ("two", "train", ["all@1", "few@1"]),
    ]


def test_datasets_gives_one_row_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside task.toml, JSON and other files that the library would take for data, and with a task in steps."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    make_task(tmp_path / "src" / "one", files={"tests/cases.jsonl": '{"a": 1}\n', "tests/more.csv": "b\n2\n"})
    steps = f'{TOML}[[steps]]\nname = "first"\n[[steps]]\nname = "second"\n'
    scripts = {
        f"steps/{name}/{file}": "x\n" for name in ("first", "second") for file in ("instruction.md", "tests/test.sh")
    }
    make_task(tmp_path / "src" / "two", steps, {**scripts, "instruction.md": None})
    publish(tmp_path / "src", tmp_path / "out")
    loaded = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    assert {split: data["id"][:] for split, data in loaded.items()} == {"train": ["one", "two"]}
    assert loaded["train"]["steps"][:] == [1, 2]


def test_what_is_published_is_read_back(source: Path, tmp_path: Path) -> None:
    publish(source, tmp_path / "out", reward_key="score")
    taskset = envconvert.read(tmp_path / "out")
    assert (taskset.source.format, taskset.ids, taskset.reward.key) == ("harbor", ("one", "two"), "score")
    [report] = envconvert.convert(tmp_path / "out", tmp_path / "back", to="harbor")
    assert report.tasks.lossless == 2
    assert snapshot(tmp_path / "back" / "tasks") == snapshot(source)
    assert FORMATS["verifiers"].reader.read(tmp_path / "out" / "verifiers", name=None, reward_key=None).ids == (
        "one",
        "two",
    )


def test_more_tasks_than_a_folder_may_hold_are_in_shards(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "_ENTRIES", 1)
    publish(source, tmp_path / "out")
    shards = {"one": "76", "two": "3f"}  # printf one | sha256sum
    assert {id: (tmp_path / "out" / "tasks" / shard / id).is_dir() for id, shard in shards.items()} == {
        "one": True,
        "two": True,
    }
    [dataset] = json.loads((tmp_path / "out" / "registry.json").read_text("utf-8"))
    assert {task["name"]: task["path"] for task in dataset["tasks"]} == {
        id: f"tasks/{shard}/{id}" for id, shard in shards.items()
    }
    assert [row["path"] for row in rows(tmp_path / "out")] == ["tasks/76/one", "tasks/3f/two"]
    assert envconvert.read(tmp_path / "out").ids == ("one", "two")
    envconvert.convert(tmp_path / "out", tmp_path / "back", to="harbor")
    assert snapshot(tmp_path / "back" / "tasks") == snapshot(source)


# Tasks that one format refuses.


def test_a_task_that_one_format_refuses_is_there_for_the_other(source: Path, tmp_path: Path) -> None:
    make_task(source / "with-tpu", TPU)
    report = publish(source, tmp_path / "out")
    assert sorted(os.listdir(tmp_path / "out" / "tasks")) == ["one", "two", "with-tpu"]
    counts = {name: (found.written, found.refused) for name, found in report.by_format.items()}
    assert counts == {"harbor": (3, 0), "verifiers": (2, 1)}
    assert (report.tasks.written, report.tasks.degraded, report.tasks.refused) == (3, 1, 0)
    assert report.exit_code == 3
    assert [(row["id"], row["frameworks"]) for row in rows(tmp_path / "out")] == [
        ("one", ["harbor", "verifiers"]),
        ("two", ["harbor", "verifiers"]),
        ("with-tpu", ["harbor"]),
    ]
    package = FORMATS["verifiers"].reader.read(tmp_path / "out" / "verifiers", name=None, reward_key=None)
    assert package.ids == ("one", "two")
    assert "| verifiers | refused | `tpu` | 1 |" in (tmp_path / "out" / "README.md").read_text("utf-8")


def test_a_degraded_task_is_left_out_of_a_strict_part(source: Path, tmp_path: Path) -> None:
    """A link is what a wheel cannot hold, so that only the Verifiers part would be degraded."""
    (source / "one" / "tests" / "again.sh").symlink_to("test.sh")
    report = publish(source, tmp_path / "out", strict=True)
    assert {name: found.refused for name, found in report.by_format.items()} == {"harbor": 0, "verifiers": 1}
    package = FORMATS["verifiers"].reader.read(tmp_path / "out" / "verifiers", name=None, reward_key=None)
    assert package.ids == ("two",)


@pytest.mark.parametrize(("formats", "stored"), [(["harbor", "openenv"], ["two"]), (["harbor"], ["one", "two"])])
def test_a_link_keeps_a_task_out_where_it_would_cost_all_a_tag(
    formats: list[str], stored: list[str], source: Path, tmp_path: Path
) -> None:
    """`openenv validate` refuses a package with a link anywhere in it, and the root is the package."""
    (source / "one" / "tests" / "again.sh").symlink_to("test.sh")
    report = publish(source, tmp_path / "out", to=formats, claim=formats)
    assert sorted(os.listdir(tmp_path / "out" / "tasks")) == stored
    refused = [(loss.task, loss.code, loss.field) for loss in report.losses if loss.severity == "refused"]
    assert refused == ([("one", "link-shared", "tests/again.sh")] if stored == ["two"] else [])
    assert report.tasks.refused == 2 - len(stored)


def test_a_format_that_refuses_every_task_has_no_part(tmp_path: Path) -> None:
    make_task(tmp_path / "src" / "with-tpu", TPU)
    report = publish(tmp_path / "src", tmp_path / "out")
    assert report.target.formats == ["harbor"]
    assert not (tmp_path / "out" / "verifiers").exists()
    assert header(tmp_path / "out").tags == ["rl-environment", "harbor"]


def test_nothing_is_written_where_every_format_refuses_every_task(tmp_path: Path) -> None:
    make_task(tmp_path / "src" / "bad", TOML + 'memory = "2GB"\n')
    report = run_json("publish", tmp_path / "src", tmp_path / "out", "--to", "all", code=4)
    assert report["tasks"]["written"] == 0
    assert os.listdir(tmp_path) == ["src"]


# The card and its tags.


def test_the_header_of_the_card(source: Path, tmp_path: Path) -> None:
    publish(source, tmp_path / "out")
    found = header(tmp_path / "out").to_dict()
    assert found == {
        "pretty_name": "set",
        "tags": ["rl-environment", "harbor", "verifiers"],
        "size_categories": ["n<1K"],
        "configs": [
            {"config_name": "default", "data_files": [{"split": "train", "path": "data/train-*.parquet"}]},
        ],
    }


@pytest.mark.parametrize(
    ("licence", "said"),
    [
        ("Apache-2.0", {"license": "apache-2.0"}),
        ("MIT", {"license": "mit"}),
        ("Acme Research Terms 2", {"license": "other", "license_name": "Acme Research Terms 2"}),
    ],
)
def test_the_licence(licence: str, said: dict[str, str], source: Path, tmp_path: Path) -> None:
    envconvert.convert(source, tmp_path / "package", to="verifiers", name="org/set")
    file = tmp_path / "package" / "set" / "taskset.jsonl"
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), "licence": licence}) + "\n", "utf-8")
    publish(tmp_path / "package", tmp_path / "out")
    found = header(tmp_path / "out").to_dict()
    assert {key: value for key, value in found.items() if key.startswith("license")} == said
    assert f"\n{licence}\n" in (tmp_path / "out" / "README.md").read_text("utf-8")


def test_claimed_tags_are_written_with_a_line_that_says_so(source: Path, tmp_path: Path) -> None:
    report = run_json("publish", source, tmp_path / "out", "--to", "harbor", "--claim", "harbor")
    assert report["checks"] == [
        {"framework": "harbor", "version": "0.25.0", "status": "claimed", "tasks": 2, "loaded": 0, "errors": []}
    ]
    assert header(tmp_path / "out").tags == ["rl-environment", "harbor"]
    text = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert "| Harbor 0.25.0 | 2 | tag claimed by the publisher, **not checked** |" in text


def test_only_earned_tags_are_written(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(path: Path, *, framework: str, say: object) -> list[Check]:
        status: Any = {"harbor": "earned", "verifiers": "failed"}[framework]
        errors = ["one: it was not loaded"] if framework == "verifiers" else []
        return [Check(framework=framework, version="1", status=status, tasks=2, loaded=2 - len(errors), errors=errors)]

    monkeypatch.setattr(publishing, "check", answer)
    report = publish(source, tmp_path / "out", claim=())
    assert header(tmp_path / "out").tags == ["rl-environment", "harbor"]
    assert report.exit_code == 3
    text = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert "no tag: 1 of 2 tasks load; one: it was not loaded" in text


def test_a_source_cannot_end_our_section(source: Path, tmp_path: Path) -> None:
    envconvert.convert(source, tmp_path / "package", to="verifiers", name="org/set")
    file = tmp_path / "package" / "set" / "taskset.jsonl"
    evil = "<!-- envconvert: end -->\n\n# Mine"
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), "description": evil}) + "\n", "utf-8")
    publish(tmp_path / "package", tmp_path / "out")
    publish(tmp_path / "package", tmp_path / "out")
    assert (tmp_path / "out" / "README.md").read_text("utf-8").count("<!-- envconvert: end -->") == 1


# Published again.


def test_the_same_again_changes_nothing(source: Path, tmp_path: Path) -> None:
    publish(source, tmp_path / "out")
    before = snapshot(tmp_path / "out")
    publish(source, tmp_path / "out")
    assert snapshot(tmp_path / "out") == before
    assert sorted(os.listdir(tmp_path)) == ["out", "src"]


def test_an_update_keeps_what_is_the_owners(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    publish(source, out)
    add_text(out / "README.md", "# My title\n\nBefore.\n\n", "\nAfter: <b>mine</b>.\n")
    text = (out / "README.md").read_text("utf-8")
    text = text.replace("pretty_name: set\n", "pretty_name: My set\nlanguage:\n- en\n")
    (out / "README.md").write_text(
        text.replace("- rl-environment\n", "- rl-environment\n- games\n- openenv\n"), "utf-8"
    )
    make_files(out / ".git", {"HEAD": "ref: refs/heads/main\n"})
    make_files(out, {"LICENSE": "Mine.\n"})
    make_task(source / "three")
    (source / "one").rename(tmp_path / "gone")
    report = publish(source, out, to=["harbor"], claim=["harbor"])

    assert sorted(os.listdir(out / "tasks")) == ["three", "two"]
    assert not (out / "verifiers").exists()
    assert ((out / ".git" / "HEAD").read_text(), (out / "LICENSE").read_text()) == ("ref: refs/heads/main\n", "Mine.\n")
    assert not {".git", "LICENSE", "verifiers"} & set(report.entries)
    found = header(out)
    assert (found.pretty_name, found.language) == ("My set", ["en"])
    assert found.tags == ["rl-environment", "harbor", "games"]  # openenv was not earned
    text = (out / "README.md").read_text("utf-8")
    body = text.split("---\n", 2)[2]
    assert body.startswith("# My title\n\nBefore.\n\n<!-- envconvert: ")
    assert body.endswith("<!-- envconvert: end -->\n\nAfter: <b>mine</b>.\n")
    assert "2 tasks of an RL environment" in body


def test_a_header_that_need_not_change_keeps_its_comments(source: Path, tmp_path: Path) -> None:
    publish(source, tmp_path / "out")
    card = tmp_path / "out" / "README.md"
    card.write_text(card.read_text("utf-8").replace("tags:\n", "tags: # mine\n"), "utf-8")
    publish(source, tmp_path / "out")
    assert "tags: # mine\n" in card.read_text("utf-8")


def test_a_card_without_our_section_gets_one_at_its_end(source: Path, tmp_path: Path) -> None:
    publish(source, tmp_path / "out")
    (tmp_path / "out" / "README.md").write_text("# Mine\n", "utf-8")
    publish(source, tmp_path / "out")
    body = (tmp_path / "out" / "README.md").read_text("utf-8").split("---\n", 2)[2]
    assert body.startswith("# Mine\n\n<!-- envconvert: ")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<!-- envconvert: end -->", ""),
        ("<!-- envconvert: what stands", "<!-- what stood"),
        ("---\npretty", "---\n- [pretty"),
    ],
)
def test_a_card_that_cannot_be_understood_is_left_alone(old: str, new: str, source: Path, tmp_path: Path) -> None:
    publish(source, tmp_path / "out")
    card = tmp_path / "out" / "README.md"
    assert card.read_text("utf-8").count(old) == 1
    card.write_text(card.read_text("utf-8").replace(old, new), "utf-8")
    before = snapshot(tmp_path / "out")
    done = run("publish", source, tmp_path / "out", "--to", "harbor", "--claim", "harbor")
    assert done.returncode == 4
    assert "README.md" in done.stderr
    assert snapshot(tmp_path / "out") == before


def test_what_is_in_the_way_and_not_ours_is_replaced_only_by_force(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    publish(source, out, to=["harbor"], claim=["harbor"])
    make_files(out / "verifiers", {"notes.txt": "mine\n"})
    before = snapshot(out)
    arguments = ("publish", source, out, "--to", "harbor,verifiers", "--claim", "harbor,verifiers")
    done = run(*arguments)
    assert done.returncode == 4
    assert "verifiers: it is in the way" in done.stderr
    assert snapshot(out) == before
    assert run(*arguments, "--force").returncode == 0
    assert not (out / "verifiers" / "notes.txt").exists()


def test_a_folder_that_is_not_a_repository_of_ours_is_not_touched(source: Path, tmp_path: Path) -> None:
    envconvert.convert(source, tmp_path / "out", to="harbor")
    before = snapshot(tmp_path / "out")
    arguments = ("publish", source, tmp_path / "out", "--to", "harbor", "--claim", "harbor")
    assert run(*arguments).returncode == 4
    assert snapshot(tmp_path / "out") == before
    assert run(*arguments, "--force").returncode == 0
    assert (tmp_path / "out" / "README.md").is_file()


def test_a_forced_conversion_replaces_no_repository_with_something_of_its_owners(source: Path, tmp_path: Path) -> None:
    publish(source, tmp_path / "out")
    arguments = ("convert", source, tmp_path / "out", "--to", "harbor", "--force")
    make_files(tmp_path / "out", {"LICENSE": "Mine.\n"})
    before = snapshot(tmp_path / "out")
    assert run(*arguments).returncode == 4
    assert snapshot(tmp_path / "out") == before
    (tmp_path / "out" / "LICENSE").unlink()
    assert run(*arguments).returncode == 0
    assert not (tmp_path / "out" / "verifiers").exists()


@pytest.mark.parametrize("claim", ["verifiers", "harbor,verifiers", "nonsense"])
def test_a_claim_for_what_is_not_published_is_wrong_usage(claim: str, source: Path, tmp_path: Path) -> None:
    done = run("publish", source, tmp_path / "out", "--to", "harbor", "--claim", claim)
    assert done.returncode == 2
    assert not (tmp_path / "out").exists()


def test_a_push_that_fails_leaves_what_was_published(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a token."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    arguments = ("publish", source, tmp_path / "out", "--to", "harbor", "--claim", "harbor", "--push", "org/set")
    done = run(*arguments)
    assert done.returncode == 4
    assert "org/set: to push, " in done.stderr
    assert "--repo https://huggingface.co/datasets/org/set " in (tmp_path / "out" / "README.md").read_text("utf-8")
    assert run(*arguments[:-1], "org").returncode == 2


# Images.

FAKE_DOCKER = """#!/bin/sh
echo "$*" >>"$DOCKER_LOG"
case "$*" in
  build*unbuildable*) echo "no such base" >&2; exit 1 ;;
  "image inspect"*) echo '["other/repo@sha256:00", "reg.example:5000/acme/set@sha256:feed"]' ;;
esac
"""
DOCKERFILE = {"environment/Dockerfile": "FROM debian:bookworm-slim\n"}
PUSHED = 'docker_image = "reg.example:5000/acme/set@sha256:feed"\n'


@pytest.fixture
def fake_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A docker command that builds and pushes nothing; the file of what it was asked."""
    command = tmp_path / "bin" / "docker"
    command.parent.mkdir()
    command.write_text(FAKE_DOCKER)
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_LOG", str(tmp_path / "log"))
    return tmp_path / "log"


@pytest.mark.parametrize(
    ("toml", "changed"),
    [
        (NAMED, f"{NAMED}\n[environment]\n{PUSHED}"),
        (NAMED + "# mine\n[environment] # too\ncpus = 1\n", f"{NAMED}# mine\n[environment] # too\n{PUSHED}cpus = 1\n"),
        ("", f"\n[environment]\n{PUSHED}"),
        ('[environment.env]\nA = "1"\n', f'[environment.env]\nA = "1"\n\n[environment]\n{PUSHED}'),
    ],
)
def test_a_dockerfile_is_built_pushed_and_named(toml: str, changed: str, tmp_path: Path, fake_docker: Path) -> None:
    source = tmp_path / "src"
    make_task(source / "one", toml, DOCKERFILE)
    before = snapshot(source)
    report = publish(source, tmp_path / "out", images="reg.example:5000/acme/set")
    assert snapshot(source) == before
    after = snapshot(tmp_path / "out" / "tasks")
    assert {path for path in after if after[path] != before[path]} == {b"one/task.toml"}
    assert after[b"one/task.toml"][1].decode() == changed
    losses = [(loss.task, loss.severity, loss.field) for loss in report.losses if loss.code == "image-pushed"]
    assert losses == [("one", "note", "environment.docker_image")]
    assert rows(tmp_path / "out")[0]["image"] == "reg.example:5000/acme/set@sha256:feed"


def test_equal_contexts_are_built_once_and_others_left_alone(source: Path, tmp_path: Path, fake_docker: Path) -> None:
    for name in ("same", "again"):
        make_task(source / name, NAMED, DOCKERFILE)
    make_task(source / "other", NAMED, {"environment/Dockerfile": "FROM ubuntu:24.04\n"})
    make_task(source / "named", TOML, DOCKERFILE)
    publish(source, tmp_path / "out", images="reg.example:5000/acme/set")
    asked = [line.split()[0] for line in fake_docker.read_text().splitlines()]
    assert (asked.count("build"), asked.count("push")) == (2, 2)
    for name in ("one", "two", "named"):  # they name an image already
        assert snapshot(tmp_path / "out" / "tasks" / name) == snapshot(source / name)


@pytest.mark.parametrize(
    ("task", "toml", "shows"),
    [
        ("unbuildable", NAMED, "docker build: no such base"),
        ("task", f"environment.cpus = 1\n{NAMED}", "no line [environment]"),
    ],
)
def test_an_image_that_cannot_be_made_or_named(
    task: str, toml: str, shows: str, tmp_path: Path, fake_docker: Path
) -> None:
    make_task(tmp_path / "src" / task, toml, DOCKERFILE)
    report = publish(tmp_path / "src", tmp_path / "out", images="reg.example:5000/acme/set")
    [loss] = [loss for loss in report.losses if loss.code == "image-unbuilt"]
    assert (loss.task, loss.severity) == (task, "degraded")
    assert shows in loss.message
    assert snapshot(tmp_path / "out" / "tasks") == snapshot(tmp_path / "src")


@pytest.mark.parametrize("prefix", ["acme", "Reg/acme", "reg.example/acme:tag", "https://reg.example/acme", ""])
def test_a_repository_of_images_has_a_registry(prefix: str, source: Path, tmp_path: Path) -> None:
    done = run("publish", source, tmp_path / "out", "--to", "harbor", "--claim", "harbor", "--images", prefix)
    assert done.returncode == 2


@pytest.mark.docker
def test_images_on_a_real_registry(tmp_path: Path, docker: str) -> None:
    program = shutil.which("docker-registry")
    if program is None:
        gate("registry", "there is no docker-registry; apt-get install docker-registry")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(tmp_path / "registry")}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    (tmp_path / "config.yml").write_text(json.dumps(config))
    shutil.copytree(ROOT / "fixtures" / "harbor" / "tasks" / "dockerfile-only", tmp_path / "src" / "dockerfile-only")
    repository = f"localhost:{port}/acme/set"
    serving = subprocess.Popen([program, "serve", str(tmp_path / "config.yml")], stderr=subprocess.DEVNULL)
    try:
        publish(tmp_path / "src", tmp_path / "out", images=repository)
        [row] = rows(tmp_path / "out")
        assert row["image"].startswith(f"{repository}@sha256:")
        subprocess.run([docker, "pull", "--quiet", row["image"]], check=True, capture_output=True)
    finally:
        serving.terminate()
        serving.wait()
        images = subprocess.check_output([docker, "images", "--quiet", "--no-trunc", repository], text=True).split()
        subprocess.run([docker, "rmi", "--force", *images], check=True, capture_output=True)


# Check and parity, with stand-ins for the frameworks.


class StandIn:
    """Answers from tables, and remembers where it was asked for what."""

    framework = Framework(name="stand-in", requirement="stand-in==1.0", python=(3, 11), megabytes=1)

    def __init__(self, loads: Sequence[str], rewards: dict[tuple[str, Agent], float]) -> None:
        self.loads = tuple(loads)
        self.rewards = rewards
        self.asked: list[tuple[str, str, str]] = []

    def load(self, python: Path, source: Path) -> Loaded:
        self.asked.append((source.name, "", "load"))
        return Loaded(tasks=self.loads, errors=())

    def score(self, python: Path, source: Path, task: str, agent: Agent, reward_key: str | None, work: Path) -> Score:
        self.asked.append((source.name, task, agent))
        return Score(self.rewards[task, agent])


REWARDS: dict[tuple[str, Agent], float] = {
    ("one", "oracle"): 1.0,
    ("one", "nop"): 0.0,
    ("two", "oracle"): 0.5,
    ("two", "nop"): 0.25,
    ("with-tpu", "oracle"): 1.0,
    ("with-tpu", "nop"): 0.0,
}


@pytest.fixture
def probes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, StandIn]:
    monkeypatch.setenv("ENVCONVERT_CACHE", str(tmp_path / "cache"))
    for module in (checking, scoring):
        monkeypatch.setattr(module, "require_docker", lambda: None)
        monkeypatch.setattr(module, "interpreter", lambda framework, say: Path("python"))
    found = {"harbor": StandIn(["one", "two", "with-tpu"], REWARDS), "verifiers": StandIn(["one", "two"], REWARDS)}
    monkeypatch.setattr(Format, "probe", property(lambda self: found[self.name]))
    return found


def test_each_framework_is_asked_in_its_place(source: Path, tmp_path: Path, probes: dict[str, StandIn]) -> None:
    make_task(source / "with-tpu", TPU)
    publish(source, tmp_path / "out")
    found = {check.framework: check for check in checking.check(tmp_path / "out", say=quiet)}
    assert {name: (check.status, check.tasks, check.loaded) for name, check in found.items()} == {
        "harbor": ("earned", 3, 3),
        "verifiers": ("earned", 2, 2),
    }
    assert probes["harbor"].asked == [("out", "", "load"), ("out", "one", "oracle")]
    assert probes["verifiers"].asked == [("verifiers", "", "load"), ("verifiers", "one", "oracle")]


def test_a_tag_needs_every_task_that_was_not_refused(source: Path, tmp_path: Path, probes: dict[str, StandIn]) -> None:
    probes["verifiers"].loads = ("one",)
    report = publish(source, tmp_path / "out", claim=())
    assert [(check.framework, check.status) for check in report.checks] == [
        ("harbor", "earned"),
        ("verifiers", "failed"),
    ]
    assert header(tmp_path / "out").tags == ["rl-environment", "harbor"]


def test_a_framework_that_it_is_not_published_for(source: Path, tmp_path: Path) -> None:
    publish(source, tmp_path / "out", to=["harbor"], claim=["harbor"])
    done = run("check", tmp_path / "out", "--framework", "verifiers")
    assert done.returncode == 4
    assert "it is not published for verifiers, but for harbor" in done.stderr


def test_parity_scores_the_source_once_and_every_framework(
    source: Path, tmp_path: Path, probes: dict[str, StandIn]
) -> None:
    make_task(source / "with-tpu", TPU)
    publish(source, tmp_path / "out")
    result = scoring.parity(source, tmp_path / "out", say=quiet)
    assert [(row.task, row.agent, row.framework, row.source, row.target) for row in result.rows] == [
        ("one", "oracle", "harbor", 1.0, 1.0),
        ("one", "oracle", "verifiers", 1.0, 1.0),
        ("one", "nop", "harbor", 0.0, 0.0),
        ("one", "nop", "verifiers", 0.0, 0.0),
        ("two", "oracle", "harbor", 0.5, 0.5),
        ("two", "oracle", "verifiers", 0.5, 0.5),
        ("two", "nop", "harbor", 0.25, 0.25),
        ("two", "nop", "verifiers", 0.25, 0.25),
        ("with-tpu", "oracle", "harbor", 1.0, 1.0),
        ("with-tpu", "nop", "harbor", 0.0, 0.0),
    ]
    assert (result.equal, result.different, result.unscored) == (10, 0, 0)
    assert probes["harbor"].asked.count(("src", "one", "oracle")) == 1


def test_parity_leaves_its_table_in_the_card(source: Path, tmp_path: Path, probes: dict[str, StandIn]) -> None:
    out = tmp_path / "out"
    publish(source, out)
    add_text(out / "README.md", "Before.\n", "After.\n")
    probes["verifiers"].rewards = {**REWARDS, ("two", "nop"): 1.0}
    scoring.parity(source, out, say=quiet)
    text = (out / "README.md").read_text("utf-8")
    assert "2 of 2 tasks were scored on Docker" in text
    assert "| Harbor 0.25.0 | nop | 2 | 0 | 0 |" in text
    assert "| Verifiers 0.4.0 | oracle | 2 | 0 | 0 |" in text
    assert "| Verifiers 0.4.0 | nop | 1 | 0 | 1 |" in text
    assert text.endswith("<!-- envconvert: end -->\nAfter.\n")
    document = json.loads((out / "envconvert.json").read_text("utf-8"))
    assert "parity.json" in document["entries"]
    (out / "envconvert.json").unlink()
    assert str(digest_of(walk(out))) == document["target"]["digest"]


def test_what_parity_measured_stays_with_the_files(source: Path, tmp_path: Path, probes: dict[str, StandIn]) -> None:
    out = tmp_path / "out"
    publish(source, out)
    scoring.parity(source, out, tasks="one", say=quiet)
    scoring.parity(source, out, tasks="two", agents=["nop"], say=quiet)
    publish(source, out)  # the same files
    assert "2 of 2 tasks were scored" in (out / "README.md").read_text("utf-8")
    assert len(json.loads((out / "parity.json").read_text("utf-8"))["rows"]) == 6
    make_task(source / "three")
    publish(source, out)
    assert "Not measured on these files" in (out / "README.md").read_text("utf-8")
    assert not (out / "parity.json").exists()


# The real frameworks.

LOADED = {"harbor": 4, "verifiers": 3, "openenv": 4, "nemo-gym": 4}
"""How many of the tasks each takes."""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some of the fixtures, and a task that Verifiers refuses, for every framework."""
    folder = tmp_path_factory.mktemp("repository")
    for name in ("dockerfile-only", "env-templates", "several-rewards"):
        shutil.copytree(ROOT / "fixtures" / "harbor" / "tasks" / name, folder / "src" / name, symlinks=True)
    make_task(folder / "src" / "with-tpu", TPU)
    publish(folder / "src", folder / "hub" / "org" / "set", to=TARGETS, claim=TARGETS)
    return folder / "hub" / "org" / "set"


@pytest.mark.frameworks
@pytest.mark.parametrize("format", TARGETS)
def test_each_framework_loads_what_it_takes_and_no_more(format: str, repository: Path) -> None:
    ids = ["dockerfile-only", "env-templates", "several-rewards", "with-tpu"][: LOADED[format]]
    before = snapshot(repository)
    loaded = FORMATS[format].probe.load(interpreter_of(format), repository / FORMATS[format].place)
    assert (sorted(loaded.tasks), loaded.errors) == (ids, ())
    assert snapshot(repository) == before


@pytest.mark.frameworks
@pytest.mark.parametrize("format", sorted(set(TARGETS) - {"nemo-gym"}))  # its rows for Harbor name folders of tasks/
def test_each_framework_loads_shards(
    format: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "_ENTRIES", 1)
    publish(source, tmp_path / "out", to=TARGETS, claim=TARGETS)
    loaded = FORMATS[format].probe.load(interpreter_of(format), tmp_path / "out" / FORMATS[format].place)
    assert (sorted(loaded.tasks), loaded.errors) == (["one", "two"], ())


@pytest.mark.docker
@pytest.mark.frameworks
def test_every_tag_is_earned(repository: Path, docker: str) -> None:
    for format in TARGETS:
        interpreter_of(format)
    found = {check.framework: check for check in checking.check(repository, say=quiet)}
    assert {name: (check.status, check.loaded) for name, check in found.items()} == {
        name: ("earned", count) for name, count in LOADED.items()
    }, found


# What the card's commands print at their end: Harbor's oracle is right, and a model that says "Done." is not.
PRINTED = {
    "harbor": r"Reward.*\n.*\n.* 1\.0 ",
    "verifiers": r"\[success \].*reward=0\.00",
    "nemo-gym": r"\"reward\":0\.0,\"mask_sample\":false",
    "openenv": r"reward=0\.00[\s\S]*^0\.0$",
}


def installed(block: str, environment: Path, servers: Path) -> str:
    """`block` without what installs NeMo Gym, for it and each of its servers.

    It wants Python 3.13.14 or later, which is not everywhere; here it runs in the environment that the probe has.
    """
    there = interpreter_of("nemo-gym").parent.parent
    environment.symlink_to(there)
    kinds = ("resources_servers/set", "environment_servers/legacy_agent", "responses_api_agents/simple_agent")
    for server in (*kinds, "responses_api_models/vllm_model"):
        make_files(servers / server, {})
        (servers / server / ".venv").symlink_to(there)
    install, run = "uv tool install --python 3.13 'nemo-gym==0.7.0'\n", '--model-api-key "$LLM_KEY"\n'
    assert block.count(install) == block.count(run) == 1
    options = f"+uv_venv_dir={servers} +skip_venv_if_present=true"
    return block.replace(install, "").replace(run, f"{run.rstrip()} {options}\ncat rollouts.jsonl\n")


@pytest.mark.docker
@pytest.mark.frameworks
@pytest.mark.parametrize("format", PRINTED)
def test_the_commands_of_the_card(format: str, repository: Path, docker: str, tmp_path: Path) -> None:
    """As they stand in the card, against a clone of the repository where git looks for the Hub."""
    python = interpreter_of("harbor")  # as the card says, 3.12 or 3.13
    clone = tmp_path / "hub" / "org" / "set"
    shutil.copytree(repository, clone, symlinks=True)
    git = {"GIT_CONFIG_GLOBAL": str(tmp_path / "gitconfig"), "GIT_CONFIG_SYSTEM": os.devnull}
    there = f'[url "file://{tmp_path}/hub/"]\n\tinsteadOf = https://huggingface.co/datasets/\n'
    (tmp_path / "gitconfig").write_text(f"{there}[user]\n\tname = test\n\temail = test@example.org\n")
    for command in ("init -q -b main", "add -A", "commit -q -m Publish"):
        subprocess.run(["git", *command.split()], cwd=clone, env={**os.environ, **git}, check=True)
    title = f"### {FORMATS[format].title} {FORMATS[format].release}\n\n```bash\n"
    block = (repository / "README.md").read_text("utf-8").partition(title)[2].partition("```")[0]
    assert block.count("\n") >= 2

    from uv import find_uv_bin

    environment = tmp_path / "environment"
    if format == "nemo-gym":
        block = installed(block, environment, tmp_path / "servers")
    else:
        subprocess.run([find_uv_bin(), "venv", "--quiet", "--python", str(python), str(environment)], check=True)
    path = os.pathsep.join([str(environment / "bin"), os.path.dirname(find_uv_bin()), os.environ["PATH"]])
    with stand_in() as address, open(tmp_path / "output", "wb") as output:
        done = subprocess.Popen(
            ["bash", "-c", block],
            cwd=make_files(tmp_path / "work", {}),
            env={
                **os.environ,
                **git,
                "PATH": path,
                "VIRTUAL_ENV": str(environment),
                "HOME": str(tmp_path),
                "UV_CACHE_DIR": subprocess.check_output([find_uv_bin(), "cache", "dir"], text=True).strip(),
                "HARBOR_TELEMETRY": "0",
                "COLUMNS": "200",
                "MODEL": "stand-in",
                "LLM_URL": address,
                "LLM_KEY": "none",
                "OPENAI_API_KEY": "none",
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            done.wait(timeout=900)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(done.pid, signal.SIGTERM)  # the server, which it leaves in the background
    printed = (tmp_path / "output").read_text("utf-8", "replace")
    assert re.search(PRINTED[format], printed, re.MULTILINE), printed
