"""Tasks that ask for a reply, as a Verifiers package: what is written, read back, and scored by Verifiers itself."""

import json
import os
import subprocess
import tomllib
from pathlib import Path

import pytest
from conftest import interpreter_of
from test_harbor_replies import FRANCE, MATHS, ask, taskset_of
from test_replying import DOZEN

import envconvert
from envconvert.formats.catalogue import FORMATS
from envconvert.formats.losses import Ledger
from envconvert.formats.probe import NO_REFERENCE, Posed, Score
from envconvert.formats.rules import Answer, Calls, Combined, Contains, Number, Weighted
from envconvert.formats.taskset import Media, Message, Reply, Text, Tool, ToolCall, ToolResult
from envconvert.formats.verifiers.probe import VerifiersProbe
from envconvert.formats.verifiers.stand_in import stand_in

TURNS = ask(
    FRANCE.rule,
    id="turns",
    prompt=(
        Message(role="system", content="Be brief."),
        Message(role="user", content=(Text(text="See."), Media(kind="image", url="data:image/png;base64,AA=="))),
        Message(role="assistant", content="I look."),
        ToolCall(id="a", name="look", arguments="{}"),
        ToolCall(name="look", arguments='{"at": 1}'),
        ToolResult(id="a", text="3"),
        Message(role="developer", content="Mind the map."),
        Message(role="user", content="Capital?"),
    ),
)
PARTS = ask(
    Combined(
        parts=(
            Weighted(name="colour", rule=Answer(match=Contains(expected=("red",))), weight=0.5),
            Weighted(name="number", rule=Answer(match=Number(expected=4.0)), weight=2.0),
        )
    ),
    id="parts",
)


@pytest.fixture(scope="module")
def quiz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("verifiers") / "out"
    envconvert.write(taskset_of(FRANCE, DOZEN, TURNS, PARTS), place, format="verifiers")
    return place


def scores(python: Path, source: Path, *replies: tuple[str, str]) -> list[float | None]:
    probe = FORMATS["verifiers"].probe
    assert isinstance(probe, VerifiersProbe)
    posed = [Posed(task, Reply(text=text)) for task, text in replies]
    return [score.reward for score in probe.score_replies(python, source, posed)]


def test_what_is_written(quiz: Path) -> None:
    found = sorted(str(path.relative_to(quiz)) for path in quiz.rglob("*") if path.is_file())
    module = ["quiz/__init__.py", "quiz/grade.py", "quiz/taskset.jsonl", "quiz/taskset.py"]
    assert found == ["README.md", "envconvert.json", "pyproject.toml", *module]
    project = tomllib.loads((quiz / "pyproject.toml").read_text("utf-8"))["project"]
    assert (project["name"], project["dependencies"]) == ("quiz", ["verifiers>=0.4.0,<0.5"])
    grader = Path(envconvert.formats.__file__).parent / "grader" / "grade.py"
    assert (quiz / "quiz" / "grade.py").read_bytes() == grader.read_bytes()


def test_what_a_rule_needs_is_a_dependency(tmp_path: Path) -> None:
    envconvert.write(taskset_of(FRANCE, MATHS), tmp_path / "out", format="verifiers")
    project = tomllib.loads((tmp_path / "out" / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["dependencies"] == ["math-verify[antlr4_9_3]==0.8.0", "verifiers>=0.4.0,<0.5"]


def test_it_is_read_back(quiz: Path) -> None:
    again = envconvert.read(quiz)
    assert (again.name, again.kind, again.source.format) == ("org/quiz", "reply", "verifiers")
    ledger = Ledger()
    assert list(again.reply_tasks(ledger)) == [FRANCE, DOZEN, TURNS, PARTS]
    assert (ledger.read, ledger.losses) == (4, [])
    assert envconvert.read(quiz, tasks="d*").ids == ("dozen",)


def test_what_is_lost(tmp_path: Path) -> None:
    sound = Message(role="user", content=(Media(kind="audio", url="data:audio/wav;base64,AA=="),))
    drawn = Message(role="assistant", content=(Media(kind="image", url="data:image/png;base64,AA=="),))
    tasks = [
        ask(Calls(expected=()), id="tools", tools=(Tool(name="add"),)),
        ask(FRANCE.rule, id="sound", prompt=(sound,)),
        ask(FRANCE.rule, id="drawn", prompt=(drawn, sound)),
        TURNS,
    ]
    report = envconvert.write(taskset_of(*tasks), tmp_path / "out", format="verifiers")
    assert [(loss.task, loss.code, loss.severity) for loss in report.losses] == [
        ("tools", "tools-executed", "refused"),
        ("sound", "media-unsent", "refused"),
        ("drawn", "media-unsent", "refused"),
        ("drawn", "media-unsent", "refused"),
        ("turns", "developer-system", "note"),
    ]
    assert envconvert.read(tmp_path / "out").ids == ("turns",)


# Verifiers itself.


@pytest.mark.frameworks
def test_it_loads(quiz: Path) -> None:
    loaded = FORMATS["verifiers"].probe.load(interpreter_of("verifiers"), quiz)
    assert (loaded.tasks, loaded.errors) == (("france", "dozen", "turns", "parts"), ())


@pytest.mark.frameworks
def test_its_rewards(quiz: Path) -> None:
    said = [
        ("france", "So:\n PARIS "),
        ("france", "Rome"),
        ("france", ""),
        ("dozen", "12"),
        ("dozen", "13"),
        ("dozen", " \n"),
        ("turns", "Paris"),
        ("parts", "red"),
        ("parts", "4"),
        ("france", "\x00\ud800" + "x" * 1_100_000),
    ]
    expected = [1.0, 0.0, 0.0, 2.0, -1.0, 0.5, 1.0, 0.5, 2.0, 0.0]
    assert scores(interpreter_of("verifiers"), quiz, *said) == expected


@pytest.mark.frameworks
def test_oracle_and_nop(quiz: Path, tmp_path: Path) -> None:
    python, probe = interpreter_of("verifiers"), FORMATS["verifiers"].probe
    assert probe.score(python, quiz, "dozen", "oracle", None, tmp_path) == Score(2.0)
    assert probe.score(python, quiz, "dozen", "nop", None, tmp_path) == Score(0.5)
    assert probe.score(python, quiz, "turns", "oracle", None, tmp_path) == NO_REFERENCE


@pytest.mark.frameworks
def test_a_rule_that_cannot_be_evaluated_is_no_reward(tmp_path: Path) -> None:
    python, probe = interpreter_of("verifiers"), FORMATS["verifiers"].probe
    envconvert.write(taskset_of(ask(FRANCE.rule)), tmp_path / "out", format="verifiers")
    file = tmp_path / "out" / "quiz" / "taskset.jsonl"
    file.write_text(file.read_text("utf-8").replace('"by":"exact"', '"by":"guess"'), "utf-8")
    assert isinstance(probe, VerifiersProbe)
    [score] = probe.score_replies(python, tmp_path / "out", [Posed("one", Reply(text="Paris"))])
    assert score.reward is None
    assert "guess" in str(score.reason)


def environment(python: Path, quiz: Path) -> dict[str, str]:
    path = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONPATH": str(quiz), "PYTHONDONTWRITEBYTECODE": "1", "KEY": "none"}


@pytest.mark.frameworks
def test_vf_validate(quiz: Path, tmp_path: Path) -> None:
    """Gold: the references of france and dozen; the others have none. Noop: no reply is worth 1.0."""
    python = interpreter_of("verifiers")
    command = [str(python.with_name("vf-validate")), "quiz", "--runtime.type", "subprocess", "--no-rich"]
    command += ["-o", str(tmp_path)]
    done = subprocess.run(command, env=environment(python, quiz), capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [summary] = tmp_path.glob("*/summary.json")
    checks = json.loads(summary.read_text("utf-8"))["checks"]
    assert {name: (found["valid"], found["unchecked"], found["invalid"]) for name, found in checks.items()} == {
        "gold": (2, 2, 0),
        "noop": (4, 0, 0),
    }


@pytest.mark.frameworks
def test_vf_eval_sends_the_prompt_and_nothing_of_the_rule(quiz: Path, tmp_path: Path) -> None:
    python = interpreter_of("verifiers")
    command = [str(python.with_name("vf-eval")), "quiz", "--env.agent.harness.id", "null", "--no-push", "--no-rich"]
    command += ["--env.agent.runtime.type", "subprocess", "--model", "stand-in", "--client.api-key-var", "KEY"]
    with stand_in() as address:
        command += ["--client.base-url", address, "-o", str(tmp_path / "out")]
        done = subprocess.run(command, env=environment(python, quiz), capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [traces] = (tmp_path / "out").glob("*/traces.jsonl")
    text = traces.read_text("utf-8")
    rewards = {
        episode["task"]["data"]["id"]: episode["traces"][0]["rewards"]["reward"]["score"]
        for episode in map(json.loads, text.splitlines())
    }
    assert rewards == {"france": 0.0, "dozen": -1.0, "turns": 0.0, "parts": 0.0}  # of "Done."
    assert "Name the capital of France." in text
    for secret in ("Paris", "It is\\n12.0", '"expected"', '"rule"'):
        assert secret not in text
