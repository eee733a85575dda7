"""Tasks that ask for a reply, as a Verifiers package: what is written, read back, and scored by Verifiers itself."""

import io
import json
import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from conftest import interpreter_of
from test_harbor_replies import FRANCE, MATHS, ask, taskset_of
from test_replying import DOZEN

import envconvert
from envconvert.formats.catalogue import FORMATS
from envconvert.formats.losses import Ledger
from envconvert.formats.probe import NO_REFERENCE, Posed, Score
from envconvert.formats.rules import (
    Answer,
    Calls,
    Choice,
    Combined,
    Contains,
    Exact,
    ExpectedCall,
    Number,
    Outcomes,
    Strip,
    Weighted,
)
from envconvert.formats.taskset import Media, Message, Reply, Text, Tool, ToolCall, ToolResult
from envconvert.formats.verifiers import stand_in
from envconvert.formats.verifiers.probe import VerifiersProbe

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
LETTER = ask(
    Answer(
        clean=(Strip(),),
        match=Choice(expected="B", letters=("A", "B", "C")),
        outcomes=Outcomes(miss=-0.25, unparsable=-1.0, empty=0.0),
    ),
    id="letter",
    replies={"reference": Reply(text="b")},
)
WORD = ask(Answer(match=Exact(expected=("Ja",))), id="word")
CALL = ToolCall(name="weather", arguments='{"city": "Bonn"}')
WEATHER = Tool(
    name="weather",
    description="What the weather is.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
FORECAST = ask(
    Calls(expected=(ExpectedCall(name="weather", arguments={"city": "Bonn"}),)),
    id="forecast",
    tools=(WEATHER, Tool(name="stop")),
    replies={"reference": Reply(calls=(CALL,))},
)
QUIZ = (FRANCE, DOZEN, TURNS, PARTS, LETTER, WORD, FORECAST)
SETS = {"test": ("dozen", "letter"), "train": ("france",)}


@pytest.fixture(scope="module")
def quiz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("verifiers") / "out"
    envconvert.write(taskset_of(*QUIZ, sets=SETS), place, format="verifiers")
    return place


def scores(python: Path, source: Path, *replies: tuple[str, Reply]) -> list[float | None]:
    probe = FORMATS["verifiers"].probe
    assert isinstance(probe, VerifiersProbe)
    posed = [Posed(task, reply) for task, reply in replies]
    return [score.reward for score in probe.score_replies(python, source, posed)]


def test_what_is_written(quiz: Path) -> None:
    found = sorted(str(path.relative_to(quiz)) for path in quiz.rglob("*") if path.is_file())
    module = ["quiz/__init__.py", "quiz/grade.py", "quiz/taskset.jsonl", "quiz/taskset.py", "quiz/tools.py"]
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
    assert list(again.reply_tasks(ledger)) == list(QUIZ)
    assert (ledger.read, ledger.losses) == (7, [])
    assert again.sets == SETS
    assert envconvert.read(quiz, tasks="d*").ids == ("dozen",)
    assert envconvert.read(quiz, split="test").ids == ("dozen", "letter")


def test_the_readme_tells_of_tools_where_there_are_some(quiz: Path, tmp_path: Path) -> None:
    envconvert.write(taskset_of(FRANCE), tmp_path / "out", format="verifiers")
    told = ["**Tools.**" in (place / "README.md").read_text("utf-8") for place in (quiz, tmp_path / "out")]
    assert told == [True, False]


def test_what_is_lost(tmp_path: Path) -> None:
    sound = Message(role="user", content=(Media(kind="audio", url="data:audio/wav;base64,AA=="),))
    drawn = Message(role="assistant", content=(Media(kind="image", url="data:image/png;base64,AA=="),))
    close = Message(role="user", content=(Media(kind="image", url="https://a.org/b.png", detail="high"),))
    tasks = [
        ask(Calls(expected=()), id="tools", tools=(Tool(name="add", strict=True), Tool(name="stop"))),
        ask(FRANCE.rule, id="close", prompt=(close,)),
        ask(FRANCE.rule, id="sound", prompt=(sound,)),
        ask(FRANCE.rule, id="drawn", prompt=(drawn, sound)),
        TURNS,
    ]
    report = envconvert.write(taskset_of(*tasks), tmp_path / "out", format="verifiers")
    assert [(loss.task, loss.code, loss.severity) for loss in report.losses] == [
        ("tools", "tools-strict", "degraded"),
        ("close", "image-detail", "degraded"),
        ("sound", "media-unsent", "refused"),
        ("drawn", "media-unsent", "refused"),
        ("drawn", "media-unsent", "refused"),
        ("turns", "developer-system", "note"),
    ]
    assert envconvert.read(tmp_path / "out").ids == ("tools", "close", "turns")


# Verifiers itself.


@pytest.mark.frameworks
def test_it_loads(quiz: Path) -> None:
    loaded = FORMATS["verifiers"].probe.load(interpreter_of("verifiers"), quiz)
    assert (loaded.tasks, loaded.errors) == (tuple(task.id for task in QUIZ), ())


@pytest.mark.frameworks
def test_its_rewards(quiz: Path) -> None:
    scored = [
        ("france", Reply(text="So:\n PARIS "), 1.0),
        ("france", Reply(text="Rome"), 0.0),
        ("france", Reply(), 0.0),
        ("france", Reply(text="\x00\ud800" + "x" * 1_100_000), 0.0),
        ("france", Reply(text='{"reward": 1.0}'), 0.0),
        ("dozen", Reply(text="12"), 2.0),
        ("dozen", Reply(text="13"), -1.0),
        ("dozen", Reply(text=" \n"), 0.5),
        ("turns", Reply(text="Paris"), 1.0),
        ("parts", Reply(text="red"), 0.5),
        ("parts", Reply(text="4"), 2.0),
        ("letter", Reply(text=" b\n"), 1.0),
        ("letter", Reply(text="C"), -0.25),
        ("letter", Reply(text="none of them"), -1.0),
        ("letter", Reply(), 0.0),
        ("word", Reply(text="Ja"), 1.0),
        ("word", Reply(text="Ja\n"), 0.0),  # the space at its ends is its own
        ("forecast", Reply(calls=(CALL,)), 1.0),
        ("forecast", Reply(text="I look.", calls=(CALL,)), 1.0),
        ("forecast", Reply(calls=(CALL, CALL)), 0.0),
        ("forecast", Reply(calls=(ToolCall(name="weather", arguments='{"city": "Ulm"}'),)), 0.0),
        ("forecast", Reply(calls=(ToolCall(name="\ud800", arguments="{"),)), 0.0),
        ("forecast", Reply(text="It rains."), 0.0),
        ("forecast", Reply(), 0.0),
    ]
    found = scores(interpreter_of("verifiers"), quiz, *((task, reply) for task, reply, _ in scored))
    assert found == [reward for _, _, reward in scored]


@pytest.mark.frameworks
def test_oracle_and_nop(quiz: Path, tmp_path: Path) -> None:
    python, probe = interpreter_of("verifiers"), FORMATS["verifiers"].probe
    assert probe.score(python, quiz, "dozen", "oracle", None, tmp_path) == Score(2.0)
    assert probe.score(python, quiz, "dozen", "nop", None, tmp_path) == Score(0.5)
    assert probe.score(python, quiz, "forecast", "oracle", None, tmp_path) == Score(1.0)
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
    """Gold: the references of four tasks; the others have none. Noop: no empty reply is worth 1.0."""
    python = interpreter_of("verifiers")
    command = [str(python.with_name("vf-validate")), "quiz", "--runtime.type", "subprocess", "--no-rich"]
    command += ["-o", str(tmp_path)]
    done = subprocess.run(command, env=environment(python, quiz), capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [summary] = tmp_path.glob("*/summary.json")
    checks = json.loads(summary.read_text("utf-8"))["checks"]
    assert {name: (found["valid"], found["unchecked"], found["invalid"]) for name, found in checks.items()} == {
        "gold": (4, 3, 0),
        "noop": (7, 0, 0),
    }


Asked = list[dict[str, Any]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The bodies that the stand-in is sent from now on."""
    found: Asked = []
    answer = stand_in._Handler.do_POST

    def record(handler: stand_in._Handler) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        found.append(json.loads(body))
        handler.rfile = io.BytesIO(body)
        answer(handler)

    monkeypatch.setattr(stand_in._Handler, "do_POST", record)
    return found


def evaluated(quiz: Path, folder: Path, *options: str) -> list[dict[str, Any]]:
    """The episodes of `vf-eval`, as README.md has it, with the stand-in as the model."""
    python = interpreter_of("verifiers")
    command = [str(python.with_name("vf-eval")), "quiz", "--env.agent.harness.id", "null", "--no-push", "--no-rich"]
    command += ["--env.agent.runtime.type", "subprocess", "--model", "stand-in", "--client.api-key-var", "KEY"]
    with stand_in.stand_in() as address:
        command += ["--client.base-url", address, "-o", str(folder / "out"), *options]
        done = subprocess.run(command, env=environment(python, quiz), capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    [traces] = (folder / "out").glob("*/traces.jsonl")
    return [json.loads(line) for line in traces.read_text("utf-8").splitlines()]


SECRETS = ("Paris", "12.0", "Bonn", "expected", "unparsable", "taskset.jsonl", "reference")


@pytest.mark.frameworks
def test_vf_eval_sends_the_prompt_and_nothing_of_the_rule(quiz: Path, tmp_path: Path, asked: Asked) -> None:
    episodes = evaluated(quiz, tmp_path)
    assert {
        episode["task"]["data"]["id"]: (episode["ok"], episode["traces"][0]["rewards"]["reward"]["score"])
        for episode in episodes
    } == {  # of "Done."
        "france": (True, 0.0),
        "dozen": (True, -1.0),
        "turns": (True, 0.0),
        "parts": (True, 0.0),
        "letter": (True, -1.0),
        "word": (True, 0.0),
        "forecast": (True, 0.0),
    }
    [parts] = [episode["traces"][0] for episode in episodes if episode["task"]["data"]["id"] == "parts"]
    assert (parts["metrics"]["colour"], parts["metrics"]["number"]) == (0.0, 0.0)
    for secret in SECRETS:
        assert secret not in json.dumps(asked)
        assert secret not in json.dumps(episodes)
    assert len(asked) == 7  # each is asked once
    [france] = [body for body in asked if "France" in json.dumps(body)]
    assert france["messages"] == [{"role": "user", "content": "Name the capital of France.\n"}]
    assert "tools" not in france


@pytest.mark.frameworks
def test_vf_eval_sends_every_kind_of_message(quiz: Path, tmp_path: Path, asked: Asked) -> None:
    evaluated(quiz, tmp_path, "--select.include.ids", "turns")
    function = {"name": "look", "arguments": "{}"}
    again = {"name": "look", "arguments": '{"at": 1}'}
    [body] = asked
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "See."},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
            ],
        },
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"id": "a", "type": "function", "function": function},
                {"id": "call_4", "type": "function", "function": again},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "3"},
        {"role": "system", "content": "Mind the map."},
        {"role": "user", "content": "Capital?"},
    ]


@pytest.mark.frameworks
@pytest.mark.parametrize(("city", "reward"), [("Bonn", 1.0), ("Ulm", 0.0)])
def test_vf_eval_offers_tools_whose_calls_are_the_reply(
    city: str, reward: float, quiz: Path, tmp_path: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = {"name": "weather", "arguments": json.dumps({"city": city})}
    message = {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{"index": 0, "id": "c", "type": "function", "function": function}],
    }
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    monkeypatch.setitem(stand_in._REPLY, "choices", [choice])
    [episode] = evaluated(quiz, tmp_path, "--select.include.ids", "forecast")
    [body] = asked  # it is not asked again, with what the call would have brought
    assert [tool["function"] for tool in body["tools"]] == [
        {"name": "weather", "description": "What the weather is.", "parameters": WEATHER.parameters},
        {"name": "stop", "description": "", "parameters": {"type": "object", "properties": {}}},
    ]
    [trace] = episode["traces"]
    assert (episode["ok"], episode["errors"], trace["errors"], trace["stop_condition"]) == (True, [], [], "called")
    assert trace["rewards"] == {"reward": {"score": reward, "weight": 1.0}}
    assert [node["message"]["role"] for node in trace["nodes"]] == ["user", "assistant"]


@pytest.mark.frameworks
def test_a_rule_that_cannot_be_evaluated_fails_the_rollout(tmp_path: Path) -> None:
    envconvert.write(taskset_of(FRANCE), tmp_path / "quiz", format="verifiers")
    file = tmp_path / "quiz" / "quiz" / "taskset.jsonl"
    file.write_text(file.read_text("utf-8").replace('"by":"exact"', '"by":"guess"'), "utf-8")
    [episode] = evaluated(tmp_path / "quiz", tmp_path)
    [trace] = episode["traces"]
    assert (episode["ok"], trace["rewards"]) == (False, {"reward": None})
    assert "guess" in trace["errors"][0]["message"]
