"""`plan` says what `convert` does, and writes nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, TOML, make_task, run, run_json, snapshot

import envconvert
from envconvert.formats.names import TARGETS

FIXTURES = ROOT / "fixtures" / "harbor" / "tasks"


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Tasks that are lossless, degraded and refused, for reasons found in reading and in either format."""
    source = tmp_path / "src"
    make_task(source / "good")
    make_task(source / "bad-toml", "[")
    make_task(source / "unknown-key", f"{TOML}cpu = 1\n")
    make_task(source / "unnamed", TOML.replace("[task]", "[metadata]"))
    make_task(source / "empty-folder", files={"tests/empty/": ""})
    make_task(source / "tpu", f'{TOML}[environment.tpu]\ntype = "v5e"\ntopology = "2x2"\n')
    make_task(source / "other-mode").joinpath("tests/test.sh").chmod(0o750)
    (make_task(source / "link") / "tests" / "link").symlink_to("test.sh")
    return source


def foreseen(plan: dict[str, Any]) -> Any:
    return plan["tasks"], plan["levels"], plan["losses"]


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("strict", [False, True])
def test_a_plan_is_the_report_of_the_conversion(to: str, strict: bool, mixed: Path, tmp_path: Path) -> None:
    options = ["--to", to, *(["--strict"] if strict else [])]
    done = run("convert", mixed, tmp_path / "out", *options, "--json")
    report = json.loads(done.stdout)
    plan = run_json("plan", mixed, *options, code=done.returncode)
    assert foreseen(plan) == foreseen(report)
    assert plan["tasks"]["refused"] > 0
    assert {row["task"] for row in plan["plan"] if row["fidelity"] == "refused"} == {
        loss["task"] for loss in report["losses"] if loss["severity"] == "refused"
    }


@pytest.mark.parametrize("to", TARGETS)
def test_fixtures(to: str, tmp_path: Path) -> None:
    [report] = envconvert.convert(FIXTURES, tmp_path / "out", to=to)
    [plan] = envconvert.plan(FIXTURES, to=to)
    assert (plan.tasks, plan.levels, plan.losses) == (report.tasks, report.levels, report.losses)


def test_several_formats_are_planned_as_if_each_were_alone(mixed: Path) -> None:
    together = run_json("plan", mixed, "--to", "all", code=3)
    assert [plan["target"]["formats"] for plan in together] == [[name] for name in TARGETS]
    assert together == [run_json("plan", mixed, "--to", name, code=3) for name in TARGETS]


def test_each_task_has_its_fidelity_level_and_losses(mixed: Path) -> None:
    plan = run_json("plan", mixed, "--to", "harbor", "--tasks", "[bgu]*", code=3)
    assert {row["task"]: (row["fidelity"], row["level"], row["losses"]) for row in plan["plan"]} == {
        "bad-toml": ("refused", None, ["config-syntax"]),
        "good": ("lossless", "native", []),
        "unknown-key": ("lossless", "native", ["key-unknown"]),
        "unnamed": ("lossless", "native", ["package-unnamed"]),
    }
    assert set(plan) == {"envconvert", "source", "target", "tasks", "levels", "losses", "plan"}
    assert "digest" not in plan["source"]


def test_nothing_is_written(mixed: Path, tmp_path: Path) -> None:
    before = snapshot(tmp_path)
    assert run("plan", mixed, "--to", "all", cwd=tmp_path).returncode == 3
    assert snapshot(tmp_path) == before


def test_what_people_see(mixed: Path) -> None:
    said = run("plan", mixed, "--to", "verifiers").stdout
    assert said.startswith("src -> verifiers: ")
    [syntax] = [line for line in said.splitlines() if line.split()[1:3] == ["refused", "config-syntax"]]
    assert syntax.split()[0] == "1"
    assert "bad-toml: task.toml: " in said


@pytest.mark.parametrize(("tasks", "code"), [("good", 0), ("*o*", 3), ("bad-toml", 4), ("none", 4)])
def test_exit_codes(tasks: str, code: int, mixed: Path) -> None:
    assert run("plan", mixed, "--to", "harbor", "--tasks", tasks, "--quiet").returncode == code


def test_an_unknown_format_is_wrong_usage(mixed: Path) -> None:
    assert run("plan", mixed, "--to", "nonsense").returncode == 2
    assert run("convert", mixed, mixed.parent / "out", "--to", "all").returncode == 2
