"""Tasks that ask for a reply as an OpenEnv package: what stands in it, that it is read back, what OpenEnv scores."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
import urllib.error
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from conftest import ROOT, ask, interpreter_of, snapshot
from test_openenv_package import STATE, play, post, reset, serving

import envconvert
from envconvert import pipeline
from envconvert.formats import packages
from envconvert.formats.catalogue import FORMATS
from envconvert.formats.files import UnreadableSourceError
from envconvert.formats.losses import Ledger
from envconvert.formats.openenv.probe import PROBE
from envconvert.formats.openenv.reply_writer import commands
from envconvert.formats.probe import Posed
from envconvert.formats.repository import SharedTasks
from envconvert.formats.rules import (
    Answer,
    Boxed,
    Calls,
    Cases,
    Choice,
    Combined,
    Contains,
    Exact,
    ExpectedCall,
    Lower,
    Math,
    Number,
    Outcomes,
    Program,
    Regex,
    Rule,
    Schema,
    Similar,
    Strip,
    Weighted,
)
from envconvert.formats.rules import packages as needed
from envconvert.formats.taskset import (
    Limits,
    Media,
    Message,
    Reply,
    ReplyTask,
    Taskset,
    TasksetSource,
    Text,
    Tool,
    ToolCall,
    ToolResult,
)

PACKAGE = ROOT / "formats" / "openenv" / "reply_package"
GRADER = ROOT / "formats" / "grader" / "grade.py"
SECRET = "PLANTED-SECRET"


def user(text: str) -> Message:
    return Message(role="user", content=text)


CAPITAL = ReplyTask(
    id="geo/capital",
    prompt=(Message(role="system", content="Answer in a word."), user("The capital of France?")),
    rule=Answer(clean=(Strip(characters=" .\n"), Lower()), match=Exact(expected=("Paris",))),
    replies={"reference": Reply(text="Paris"), "other": Reply(text="Lyon", reward=0.0)},
    metadata={"difficulty": "easy"},
    origin="a book",
    native={"table": {"answer": "Paris"}},
)
SUM = ReplyTask(
    id="sum",
    prompt=(user("1 + 1"), Message(role="assistant", content="So 2"), user("1 + 2.5")),
    rule=Answer(
        extract=((Regex(pattern=r"-?\d+(?:\.\d+)?"),),),
        match=Number(expected=3.5, absolute=0.01),
        outcomes=Outcomes(match=2.0, miss=-0.5, unparsable=-1.0),
    ),
    replies={"reference": Reply(text="So 3.5")},
)
CHOICE = ReplyTask(
    id="choice",
    prompt=(user("A, B or C? Box it."),),
    rule=Answer(
        extract=((Boxed(),),),
        match=Choice(expected="B", letters=("A", "B", "C")),
        outcomes=Outcomes(miss=-0.25, unparsable=-1.0, empty=-2.0),
    ),
    replies={"reference": Reply(text=r"\boxed{B}")},
)
PARTS = ReplyTask(
    id="parts",
    prompt=(user("Say red and 3."),),
    rule=Combined(
        parts=(
            Weighted(name="colour", rule=Answer(match=Contains(expected=("red",))), weight=0.5),
            Weighted(
                name="number", rule=Answer(extract=((Regex(pattern=r"\d+"),),), match=Number(expected=3.0)), weight=2.0
            ),
        )
    ),
    replies={"reference": Reply(text="red, 3")},
)
PROGRAM = ReplyTask(
    id="program",
    prompt=(user("Write double(x)."),),
    rule=Cases(cases=(Program(text="assert double(2) == 4"),), seconds=1.0, memory_mb=512),
)
CALL = ToolCall(name="weather", arguments='{"city": "Bonn"}')
WEATHER = Tool(
    name="weather",
    description="The weather.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
FORECAST = ReplyTask(
    id="forecast",
    prompt=(
        Message(role="developer", content="Use the tools."),
        user("In Köln?"),
        Message(role="assistant", content="I look."),
        ToolCall(id="c1", name="weather", arguments='{"city": "Köln"}'),
        ToolResult(id="c1", text="rain"),
        ToolCall(name="weather", arguments='{"city": "Bonn"}'),
    ),
    tools=(WEATHER, Tool(name="stop", strict=True)),
    rule=Calls(expected=(ExpectedCall(name="weather", arguments={"city": "Bonn"}),)),
    replies={"reference": Reply(calls=(CALL,))},
)
PIXEL = "data:image/png;base64,iVBORw0KGgo="
PICTURE = ReplyTask(
    id="picture",
    prompt=(
        Message(
            role="user",
            content=(
                Text(text="Which?"),
                Media(kind="image", url=PIXEL, detail="low"),
                Media(kind="image", url="https://example.org/b.png"),
                Media(kind="audio", url="data:audio/wav;base64,YQ=="),
                Media(kind="file", url="data:text/plain;base64,YQ==", name="a.txt"),
                Media(kind="file", url="https://example.org/b.pdf"),
            ),
        ),
    ),
    rule=Answer(match=Exact(expected=("white",))),
)
QUIZ = (CAPITAL, SUM, CHOICE, PARTS, PROGRAM, PICTURE)
SETS = {"train": ("choice", "sum"), "test": ("geo/capital",)}


def taskset_of(*tasks: ReplyTask, **said: Any) -> Taskset:
    def read(ledger: Ledger) -> Iterator[ReplyTask]:
        for task in tasks:
            ledger.read += 1
            yield task

    return Taskset(
        **{"name": "org/quiz", **said},
        source=TasksetSource(format="table", uri="quiz"),
        ids=tuple(task.id for task in tasks),
        kind="reply",
        tasks=read,
    )


def written(folder: Path, *tasks: ReplyTask, **said: Any) -> Path:
    report = pipeline.write(taskset_of(*tasks, **said), folder, format="openenv")
    assert report.tasks.written == len(tasks)
    return folder


def with_rule(task: ReplyTask, rule: Rule) -> ReplyTask:
    return msgspec.structs.replace(task, rule=rule)


def manifest(package: Path) -> Any:
    return yaml.safe_load((package / "openenv.yaml").read_text("utf-8"))


# Without the framework.


def test_the_layout(tmp_path: Path) -> None:
    out = written(tmp_path / "out", *QUIZ)
    assert sorted(os.listdir(out)) == [
        *(".dockerignore", "README.md", "__init__.py", "client.py", "envconvert.json", "models.py", "openenv.yaml"),
        *("pyproject.toml", "server", "taskset.jsonl", "validation"),
    ]
    code = {path.name: path.read_bytes() for path in (PACKAGE / "server").glob("*.py")}
    found = {path.name: path.read_bytes() for path in (out / "server").glob("*.py")}
    assert found == {**code, "grade.py": GRADER.read_bytes()}
    assert (out / "models.py").read_bytes() == (PACKAGE / "models.py").read_bytes()
    for path in out.rglob("*.py"):
        ast.parse(path.read_bytes())
    assert not list(out.rglob("*.jinja"))


def test_the_code_passes_the_linter(tmp_path: Path) -> None:
    out = written(tmp_path / "out", *QUIZ)
    for command in (["check"], ["format", "--check"]):
        options = ["--config", str(ROOT / "pyproject.toml"), "--no-cache", str(out)]
        done = subprocess.run([sys.executable, "-m", "ruff", *command, *options], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_the_manifest(tmp_path: Path) -> None:
    out = written(tmp_path / "out", *QUIZ, sets=SETS, name="org/My-Set", version="1.4", description='A "quiz": #1')
    said = manifest(out)
    assert (said["name"], said["version"], said["description"]) == ("my_set_env", "1.4", 'A "quiz": #1')
    assert (said["app"], said["action"], said["observation"]) == ("server.app:app", "ReplyAction", "ReplyObservation")
    validation = said["validation"]
    assert validation["reward"] == {"range": [-2.0, 2.5], "oracle_tolerance": 0.0, "floor_margin": 0.1}
    resources = {"cpu": 1, "memory_mb": 2048 + 512, "disk_mb": 1024, "episode_timeout_s": 3600, "gpus": 0}
    assert validation["resources"] == resources
    assert validation["capabilities"]["declared_task_count"] == {"train": 2, "test": 1, "unassigned": 3}
    assert json.loads((out / "validation" / "runtime.json").read_text()) == {
        "plan_schema_version": "1",
        "reset": {"episode_id": "validation", "seed": 0, "options": {"task_id": "geo/capital"}},
        "actions": [{"text": ""}],
    }


@pytest.mark.parametrize(
    ("rule", "least", "most"),
    [
        (CAPITAL.rule, 0.0, 1.0),
        (CHOICE.rule, -2.0, 1.0),
        (PARTS.rule, 0.0, 2.5),
        (with_rule(CAPITAL, Answer(match=Exact(expected=("a",)), outcomes=Outcomes(miss=1.0))).rule, 1.0, 2.0),
        (Answer(match=Exact(expected=("a",)), outcomes=Outcomes(match=1e-7)), 0.0, 1e-7),
        (Combined(how="mean", parts=(Weighted(name="a", rule=CHOICE.rule, weight=-1.0),)), -2.0, 1.0),
        (Combined(how="sum", parts=(Weighted(name="a", rule=CHOICE.rule, weight=-2.0),)), -2.0, 4.0),
        (Combined(how="product", parts=tuple(Weighted(name=n, rule=CHOICE.rule) for n in "ab")), -2.0, 4.0),
        (Combined(how="gate", parts=(Weighted(name="a", rule=Answer(match=Math(expected="1"))),)), 0.0, 1.0),
        (Combined(how="min", parts=(Weighted(name="a", rule=CHOICE.rule), Weighted(name="b", rule=SUM.rule))), -2, 2),
        (Combined(parts=(Weighted(name="a", rule=CAPITAL.rule), Weighted(name="b", rule=SUM.rule, weight=0))), 0, 1),
    ],
)
def test_the_range_of_rewards(tmp_path: Path, rule: Rule, least: float, most: float) -> None:
    out = written(tmp_path / "out", with_rule(CAPITAL, rule))
    assert manifest(out)["validation"]["reward"]["range"] == [least, most]


def test_what_a_rule_needs_is_required(tmp_path: Path) -> None:
    maths = with_rule(CHOICE, Answer(match=Math(expected="1/2")))
    checked = with_rule(SUM, Combined(parts=(Weighted(name="s", rule=Answer(match=Schema(schema={}))),)))
    out = written(tmp_path / "out", CAPITAL, maths, checked)
    project = tomllib.loads((out / "pyproject.toml").read_text("utf-8"))["project"]
    pins = ["jsonschema>=4.18", "math-verify[antlr4_9_3]==0.8.0"]
    assert project["dependencies"] == ["openenv>=0.10.0,<0.11", *pins]
    installed = 'pip install --no-cache-dir "openenv==0.10.0" "jsonschema>=4.18" "math-verify[antlr4_9_3]==0.8.0"\n'
    assert installed in (out / "server" / "Dockerfile").read_text()
    assert 'pip install "openenv==0.10.0" "jsonschema>=4.18" "math' in (out / "README.md").read_text()
    assert project["scripts"] == {"server": "quiz_env.server.app:main"}
    plain = written(tmp_path / "plain", CAPITAL)
    assert "math-verify" not in (plain / "pyproject.toml").read_text() + (plain / "server/Dockerfile").read_text()
    assert set(needed(maths.rule).values()) <= set(PROBE.framework.beside)


def test_the_image_holds_what_the_server_needs_and_nothing_else(tmp_path: Path) -> None:
    out = written(tmp_path / "out", CAPITAL)
    ignored = (out / ".dockerignore").read_text().splitlines()
    copied = re.findall(r"^COPY (.+) \S+$", (out / "server" / "Dockerfile").read_text(), re.MULTILINE)
    assert "*" in ignored
    assert {line[1:] for line in ignored if line.startswith("!")} == set(" ".join(copied).split())


@pytest.mark.parametrize(("tasks", "has_tools"), [(QUIZ, False), ((*QUIZ, FORECAST), True)])
def test_readme(tmp_path: Path, tasks: Sequence[ReplyTask], has_tools: bool) -> None:
    text = (written(tmp_path / "out", *tasks, sets=SETS, name="org/My-Set") / "README.md").read_text("utf-8")
    matter, _, rest = text.removeprefix("---\n").partition("\n---\n")
    assert yaml.safe_load(matter) == {"title": "org/My-Set", "sdk": "docker", "app_port": 8000, "tags": ["openenv"]}
    [play_it] = re.findall(r"```python\n(.*?)```", rest, re.DOTALL)
    ast.parse(play_it)
    assert ("tool_calls" in play_it) == has_tools
    assert 'task_id="geo/capital"' in play_it
    words = " ".join(rest.split())
    assert f"{len(tasks)} tasks for" in words
    assert f"`train` (2), `test` (1), `unassigned` ({len(tasks) - 3})" in words
    assert "`/my_set_env/splits`" in words
    for left in ("{%", "{{"):
        assert left not in text


def test_commands() -> None:
    said = commands(taskset_of(CAPITAL), "geo/capital")
    assert "git clone https://huggingface.co/datasets/org/quiz && cd quiz\n" in said
    script = said.partition("<<'EOF'\n")[2].removesuffix("EOF")
    ast.parse(script)
    assert "task_id='geo/capital'" in script


def test_in_a_repository_the_readme_is_its_own(tmp_path: Path) -> None:
    taskset, ledger = taskset_of(CAPITAL), Ledger()
    target = envconvert.formats.files.Target(tmp_path)
    writer = FORMATS["openenv"].writer("reply")
    tasks = [writer.listed(CAPITAL, taskset, target, ledger)]
    writer.write_rest(taskset, target, ledger, tasks, SharedTasks(left_out=("b",)))
    assert not (tmp_path / "README.md").exists()
    assert packages.read_header(tmp_path / "taskset.jsonl").left_out == {"b"}


@pytest.mark.parametrize("tasks", [QUIZ, (*QUIZ, FORECAST)])
def test_there_and_back(tmp_path: Path, tasks: Sequence[ReplyTask]) -> None:
    out = written(tmp_path / "out", *tasks, sets=SETS, licence="MIT", description="A quiz.", version="1.2.0")
    assert next(name for name, format in FORMATS.items() if format.reader.detect(out)) == "openenv"
    back = envconvert.read(out)
    assert list(back) == list(tasks)
    assert (back.kind, back.name, back.licence, back.description) == ("reply", "org/quiz", "MIT", "A quiz.")
    assert back.sets == SETS
    assert envconvert.read(out, split="test").ids == ("geo/capital",)
    assert envconvert.read(out, name="org/other").name == "org/other"
    pipeline.write(back, tmp_path / "again", format="openenv")
    first, again = snapshot(out), snapshot(tmp_path / "again")
    for found in (first, again):
        del found[b"envconvert.json"]
    assert first == again


def test_a_line_that_is_no_task_is_told(tmp_path: Path) -> None:
    out = written(tmp_path / "out", CAPITAL)
    file = out / "taskset.jsonl"
    file.write_text(file.read_text("utf-8").replace('"kind":"answer"', '"kind":"luck"'), "utf-8")
    with pytest.raises(UnreadableSourceError, match="line 2 is no task"):
        list(envconvert.read(out))


def test_losses(tmp_path: Path) -> None:
    timed = msgspec.structs.replace(CHOICE, limits=Limits(agent=5.0))
    report = pipeline.write(taskset_of(CAPITAL, timed, PICTURE), tmp_path / "out", format="openenv")
    assert [(loss.code, loss.task, loss.severity) for loss in report.losses] == [("reply-late", "choice", "degraded")]
    assert manifest(tmp_path / "out")["validation"]["resources"]["episode_timeout_s"] == 3600
    alone = msgspec.structs.replace(CHOICE, limits=Limits(agent=5.0))
    pipeline.write(taskset_of(alone), tmp_path / "alone", format="openenv")
    assert manifest(tmp_path / "alone")["validation"]["resources"]["episode_timeout_s"] == 5.0
    strict = pipeline.write(taskset_of(alone), tmp_path / "strict", format="openenv", strict=True)
    assert (strict.tasks.written, (tmp_path / "strict").exists()) == (0, False)


# In the real OpenEnv.


@pytest.fixture(scope="session")
def python() -> Path:
    """The interpreter of the real OpenEnv."""
    return interpreter_of("openenv")


@pytest.fixture(scope="session")
def quiz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package of all the tasks."""
    return written(tmp_path_factory.mktemp("quiz") / "quiz_env", *QUIZ, FORECAST, sets=SETS)


@pytest.fixture(scope="module")
def served(python: Path, quiz: Path) -> Iterator[str]:
    """The address of its server."""
    with serving(python, quiz) as (address, _):
        yield address


def said(text: str = "", *calls: ToolCall) -> tuple[str, dict[str, Any]]:
    return "step", {"text": text, "calls": [{"name": call.name, "arguments": call.arguments} for call in calls]}


@pytest.mark.frameworks
def test_it_loads(python: Path, quiz: Path) -> None:
    before = snapshot(quiz)
    loaded = PROBE.load(python, quiz)
    assert (sorted(loaded.tasks), loaded.errors) == (sorted(task.id for task in (*QUIZ, FORECAST)), ())
    assert snapshot(quiz) == before


@pytest.mark.frameworks
def test_a_package_that_is_not_valid_or_does_not_start_is_told(python: Path, tmp_path: Path) -> None:
    out = written(tmp_path / "out", CAPITAL)
    (out / "openenv.yaml").write_text((out / "openenv.yaml").read_text().replace("floor_margin: 0.1", "floor: 0"))
    loaded = PROBE.load(python, out)
    assert loaded.tasks == ("geo/capital",)
    assert "floor" in " ".join(loaded.errors)
    with open(out / "taskset.jsonl", "a") as file:
        file.write("{\n")
    loaded = PROBE.load(python, out)
    assert loaded.tasks == ()
    assert "the server failed" in loaded.errors[1]


@pytest.mark.frameworks
def test_the_client_is_found_by_its_package(quiz: Path, python: Path) -> None:
    script = """
import json, sys
sys.dont_write_bytecode = True
sys.path.insert(0, json.load(sys.stdin))
from openenv.auto._discovery import _create_env_info_from_package
found = _create_env_info_from_package("openenv-quiz_env", "quiz_env", "1")
print(json.dumps([found.get_client_class().__name__, found.get_action_class().__name__,
                  found.get_observation_class().__name__, "quiz_env.server.app" in sys.modules]))
"""
    assert ask(python, script, str(quiz.parent)) == ["QuizEnv", "ReplyAction", "ReplyObservation", False]


@pytest.mark.frameworks
def test_the_packages_own_client(quiz: Path, python: Path, served: str) -> None:
    script = """
import json, sys
sys.dont_write_bytecode = True
asked = json.load(sys.stdin)
sys.path.insert(0, asked["folder"])
from quiz_env import Call, QuizEnv, ReplyAction
with QuizEnv(base_url=asked["address"]).sync() as env:
    first = env.reset(task_id="forecast").observation
    done = env.step(ReplyAction(text="I look.", calls=[Call(name="weather", arguments='{"city": "Bonn"}')]))
    print(json.dumps([first.tools[0]["function"]["name"], done.reward, done.done, env.state().task_id]))
"""
    asked = {"folder": str(quiz.parent), "address": served}
    assert ask(python, script, asked) == ["weather", 1.0, True, "forecast"]


# Scores.

MEGABYTE = "x" * 1_000_000
HOSTILE = "\\boxed{" * 2000 + "}{" * 2000 + "\x00\u2028" + "é" * 5000
ENDLESS = "```python\ndef double(x):\n    while True: pass\n```"

SCORED: list[tuple[ReplyTask, Reply, float]] = [
    (CAPITAL, Reply(text=" Paris.\n"), 1.0),
    (CAPITAL, Reply(text="London"), 0.0),
    (CAPITAL, Reply(), 0.0),
    (CAPITAL, Reply(text=MEGABYTE), 0.0),
    (CAPITAL, Reply(text="Par\x00is"), 0.0),
    (CAPITAL, Reply(text="\ud800"), 0.0),
    (CAPITAL, Reply(text="Paris", calls=(CALL,)), 1.0),
    (SUM, Reply(text="So 3.505"), 2.0),
    (SUM, Reply(text="3.52"), -0.5),
    (SUM, Reply(text="three"), -1.0),
    (SUM, Reply(), -1.0),
    (SUM, Reply(text="\ud800\x00 3.5"), 2.0),
    (SUM, Reply(text="9" * 1_000_000), -1.0),
    (CHOICE, Reply(text=r"So \boxed{b}"), 1.0),
    (CHOICE, Reply(text=r"So \boxed{C}"), -0.25),
    (CHOICE, Reply(text="B"), -1.0),
    (CHOICE, Reply(text=HOSTILE), -1.0),
    (CHOICE, Reply(text=MEGABYTE + r"\boxed{B}"), -1.0),
    (CHOICE, Reply(text=" \n"), -2.0),
    (PARTS, Reply(text="red 3"), 2.5),
    (PARTS, Reply(text="red 4"), 0.5),
    (PARTS, Reply(text="3"), 2.0),
    (PARTS, Reply(), 0.0),
    (PROGRAM, Reply(text="```python\ndef double(x):\n    return x + x\n```"), 1.0),
    (PROGRAM, Reply(text="```python\nimport os\nos._exit(0)\n```"), 0.0),
    (PROGRAM, Reply(text=ENDLESS), 0.0),
    (PROGRAM, Reply(text="```python\n# \ud800\ndef double(x):\n    return 2 * x\n```"), 0.0),
    (FORECAST, Reply(calls=(CALL,)), 1.0),
    (FORECAST, Reply(text="I look.", calls=(CALL,)), 1.0),
    (FORECAST, Reply(calls=(CALL, CALL)), 0.0),
    (FORECAST, Reply(calls=(ToolCall(name="weather", arguments='{"city": "Ulm"}'),)), 0.0),
    (FORECAST, Reply(calls=(ToolCall(name="weather", arguments='{"city": "\\ud800"}'),)), 0.0),
    (FORECAST, Reply(calls=(ToolCall(name="\ud800", arguments="{"),)), 0.0),
    (FORECAST, Reply(text='[{"name": "weather", "arguments": {"city": "Bonn"}}]'), 1.0),
    (FORECAST, Reply(text="It rains."), 0.0),
]


@pytest.mark.frameworks
def test_rewards(python: Path, quiz: Path) -> None:
    before = snapshot(quiz)
    found = PROBE.score_replies(python, quiz, [Posed(task.id, reply) for task, reply, _ in SCORED])
    assert [score.reason for score in found] == [None] * len(SCORED)
    assert [score.reward for score in found] == [reward for *_, reward in SCORED]
    assert snapshot(quiz) == before


@pytest.mark.frameworks
def test_what_cannot_be_scored_has_no_reward_and_a_reason(python: Path, tmp_path: Path) -> None:
    """A rule that is none, a task that is none, a reply that is too long for the server, and one that is scored."""
    out = written(tmp_path / "out", CAPITAL, CHOICE)
    file = out / "taskset.jsonl"
    file.write_text(file.read_text("utf-8").replace('"by":"choice"', '"by":"luck"'), "utf-8")
    long = Reply(text="x" * (17 << 20))
    asked = [("choice", Reply(text=r"\boxed{B}")), ("absent", Reply()), ("geo/capital", long)]
    posed = [Posed(id, reply) for id, reply in (*asked, ("geo/capital", Reply(text="Paris")))]
    *failed, right = PROBE.score_replies(python, out, posed)
    assert [score.reward for score in (*failed, right)] == [None, None, None, 1.0]
    for score, words in zip(failed, ("luck", "no task 'absent'", "too big"), strict=True):
        assert words in str(score.reason)


@pytest.mark.frameworks
def test_mathematics_and_what_else_runs_in_a_process(python: Path, tmp_path: Path) -> None:
    if not list(python.parent.parent.glob("lib/*/site-packages/math_verify")):
        pytest.skip("the environment of OpenEnv holds no math-verify")
    half = with_rule(CHOICE, Answer(match=Math(expected="1/2")))
    like = with_rule(SUM, Answer(match=Similar(expected="abcd")))
    out = written(tmp_path / "out", half, like)
    asked = [(half, r"\boxed{\frac{1}{2}}", 1.0), (half, r"\boxed{2}", 0.0), (half, HOSTILE, 0.0), (like, "abcx", 0.75)]
    found = PROBE.score_replies(python, out, [Posed(task.id, Reply(text=text)) for task, text, _ in asked])
    assert [(score.reward, score.reason) for score in found] == [(reward, None) for *_, reward in asked]


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("task", "agent", "reward", "reason"),
    [
        (CAPITAL, "oracle", 1.0, None),
        (SUM, "oracle", 2.0, None),
        (FORECAST, "oracle", 1.0, None),
        (CHOICE, "nop", -2.0, None),
        (PROGRAM, "oracle", None, "the task has no reference reply"),
    ],
)
def test_agents(
    python: Path, quiz: Path, task: ReplyTask, agent: Any, reward: float | None, reason: str | None, tmp_path: Path
) -> None:
    score = PROBE.score(python, quiz, task.id, agent, None, tmp_path)
    assert (score.reward, score.reason) == (reward, reason)


# The Task API, and what an episode shows.

PROMPT = [
    {"role": "system", "content": "Answer in a word."},
    {"role": "user", "content": "The capital of France?"},
]


@pytest.mark.frameworks
def test_task_api(served: str) -> None:
    assert "quiz_env" in str(post(served, "list_environments"))
    assert post(served, "quiz_env/splits") == [
        {"name": "train", "type": "train"},
        {"name": "test", "type": "test"},
        {"name": "unassigned", "type": "validation"},
    ]
    assert post(served, "quiz_env/num_tasks", split="unassigned") == {"num_tasks": 4}
    tasks = post(served, "quiz_env/tasks", split="unassigned")["tasks"]
    assert [(task["id"], task["split"], task["index"]) for task in tasks] == [
        (id, "unassigned", index) for index, id in enumerate(["parts", "program", "picture", "forecast"])
    ]
    [capital] = post(served, "quiz_env/tasks", split="test")["tasks"]
    assert capital == {"id": "geo/capital", "split": "test", "index": 0, "prompt": PROMPT, "tools": []}
    assert post(served, "quiz_env/task", split="unassigned", index=2)["task"] == tasks[2]
    assert post(served, "quiz_env/task_range", split="unassigned", start=1, stop=3)["tasks"] == tasks[1:3]
    for path, more in (("task", {"index": 4}), ("task", {"index": -1}), ("task_range", {"start": -1})):
        with pytest.raises(urllib.error.HTTPError):
            post(served, f"quiz_env/{path}", split="unassigned", **more)


@pytest.mark.frameworks
def test_prompts_are_messages_of_a_chat(python: Path, served: str) -> None:
    turns, tools, media = play(
        python, served, reset(task_id="sum"), reset(task_id="forecast"), reset(task_id="picture")
    )
    assert turns["prompt"] == [
        {"role": "user", "content": "1 + 1"},
        {"role": "assistant", "content": "So 2"},
        {"role": "user", "content": "1 + 2.5"},
    ]
    function = {"name": "weather", "arguments": '{"city": "Köln"}'}
    unnamed = {"name": "weather", "arguments": '{"city": "Bonn"}'}
    assert tools["prompt"][2:] == [
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_5", "type": "function", "function": unnamed}],
        },
    ]
    weather = {"name": "weather", "description": "The weather.", "parameters": WEATHER.parameters}
    assert tools["tools"] == [
        {"type": "function", "function": weather},
        {"type": "function", "function": {"name": "stop", "strict": True}},
    ]
    assert media["prompt"][0]["content"] == [
        {"type": "text", "text": "Which?"},
        {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/b.png"}},
        {"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64,YQ=="}},
        {"type": "file", "file": {"file_data": "data:text/plain;base64,YQ==", "filename": "a.txt"}},
        {"type": "file", "file": {"file_url": "https://example.org/b.pdf"}},
    ]


@pytest.mark.frameworks
def test_a_task_is_chosen_by_id_then_by_split_and_index_then_by_seed(served: str, python: Path) -> None:
    chosen = ({"task_id": "parts", "split": "test", "index": 0, "seed": 2}, {"split": "train", "index": 1, "seed": 0})
    answers = play(python, served, *(reset(**by) for by in (*chosen, {"seed": 9}, {})))
    assert [answer.get("task_id") for answer in answers] == ["parts", "sum", "choice", "geo/capital"]


REFUSED: list[tuple[dict[str, Any], list[str]]] = [
    ({"task_id": "nope"}, ["no task 'nope'", "geo/capital, sum, choice"]),
    ({"split": "dev", "index": 0}, ["no split 'dev'", "train, test, unassigned"]),
    ({"split": "train", "index": 2}, ["no task 2", "2"]),
    ({"split": "train", "index": -1}, ["no task -1"]),
    ({"split": "train"}, ["go together"]),
    ({"index": 1}, ["go together"]),
    ({"split": "train", "index": "1"}, ["index is '1'", "int"]),
    ({"split": "train", "index": True}, ["index is True"]),
    ({"task_id": 7}, ["task_id is 7", "str"]),
    ({"task": "parts"}, ["knows no task", "task_id, split, index"]),
    ({"seed": -1}, ["seed is -1"]),
]


@pytest.mark.frameworks
def test_reset_refuses_what_names_no_task(served: str, python: Path) -> None:
    answers = play(python, served, *(call for by, _ in REFUSED for call in (reset(**by), said("Paris"))))
    for (_, words), answer, step in zip(REFUSED, answers[::2], answers[1::2], strict=True):
        assert "EXECUTION_ERROR" in answer["error"]
        for word in words:
            assert word in answer["error"]
        assert "call reset first" in step["error"]


@pytest.mark.frameworks
def test_an_episode(served: str, python: Path) -> None:
    first, begun, done, over, again, fresh = play(
        python,
        served,
        reset(task_id="parts", episode_id="mine"),
        STATE,
        said("red 4"),
        STATE,
        said("red 3"),
        reset(task_id="parts"),
    )
    assert first["prompt"] == [{"role": "user", "content": "Say red and 3."}]
    assert (first["reward"], first["done"], first["rewards"], first["seconds"]) == (None, False, None, None)
    assert begun == {"episode_id": "mine", "step_count": 0, "task_id": "parts"}
    assert (done["reward"], done["done"], done["prompt"]) == (0.5, True, [])
    assert done["rewards"] == {"colour": 1.0, "number": 0.0, "reward": 0.5}
    assert over == {"episode_id": "mine", "step_count": 1, "task_id": "parts"}
    assert "the episode of parts is over; call reset" in again["error"]
    assert (fresh["task_id"], fresh["done"]) == ("parts", False)


@pytest.mark.frameworks
def test_an_episode_is_over_when_its_reset_is_refused_or_its_rule_is_none(python: Path, tmp_path: Path) -> None:
    out = written(tmp_path / "out", CHOICE, msgspec.structs.replace(CAPITAL, limits=Limits(agent=5.0)))
    file = out / "taskset.jsonl"
    file.write_text(file.read_text("utf-8").replace('"by":"choice"', '"by":"luck"'), "utf-8")
    with serving(python, out) as (address, _):
        timed, _, refused, _, failed, over = play(
            python,
            address,
            *(reset(task_id="geo/capital"), reset(task_id="nope"), said("Paris")),
            *(reset(task_id="choice"), said(r"\boxed{B}"), said(r"\boxed{B}")),
        )
    assert timed["seconds"] == 5.0
    assert "the episode of geo/capital is over" in refused["error"]
    assert "luck" in failed["error"]
    assert "the episode of choice is over" in over["error"]


@pytest.mark.frameworks
def test_what_is_no_reply_is_refused_and_does_not_end_the_episode(served: str, python: Path) -> None:
    actions: list[dict[str, Any]] = [{"text": 1}, {"message": "Paris"}, {"calls": [{"name": 1}]}, {"text": None}]
    _, *refused, scored = play(
        python, served, reset(task_id="geo/capital"), *(("step", action) for action in actions), said("Paris")
    )
    assert ["VALIDATION_ERROR" in answer["error"] for answer in refused] == [True] * len(actions)
    assert scored["reward"] == 1.0


@pytest.mark.frameworks
def test_the_server_goes_on_while_replies_are_graded(python: Path, tmp_path: Path) -> None:
    """Three that take three seconds each take as long together, and meanwhile others are served."""
    slow = with_rule(PROGRAM, Cases(cases=(Program(text="assert double(2) == 4"),), seconds=3.0))
    script = """
import json, sys, time, urllib.request
from concurrent.futures import ThreadPoolExecutor
from openenv.core import GenericEnvClient
said = json.load(sys.stdin)
def reply(task, text):
    with GenericEnvClient(base_url=said["address"]).sync() as env:
        env.reset(task_id=task)
        return env.step({"text": text}).reward
with ThreadPoolExecutor() as pool:
    begun = time.monotonic()
    slow = [pool.submit(reply, "program", said["endless"]) for _ in range(3)]
    time.sleep(1)
    asked = time.monotonic()
    quick = reply("geo/capital", "Paris")
    urllib.request.urlopen(said["address"] + "/health").read()
    quickly = time.monotonic() - asked
    print(json.dumps([quick, [each.result() for each in slow], quickly, time.monotonic() - begun]))
"""
    with serving(python, written(tmp_path / "out", slow, CAPITAL)) as (address, _):
        quick, slows, quickly, all_of_them = ask(python, script, {"address": address, "endless": ENDLESS})
    assert (quick, slows) == (1.0, [0.0] * 3)
    assert quickly < 1.5
    assert 3 <= all_of_them < 6


# Nothing of the answer is shown.


def shown(python: Path, address: str, *ids: str) -> str:
    """All that the server says of tasks before they are replied to."""
    found: list[Any] = [post(address, path) for path in ("metadata", "schema", "state", "quiz_env/splits")]
    found += [post(address, "quiz_env/tasks", split="train"), post(address, "quiz_env/task", split="train", index=0)]
    found.append(post(address, "quiz_env/task_range", split="train", start=0, stop=1))
    return json.dumps([*found, *play(python, address, *(call for id in ids for call in (reset(task_id=id), STATE)))])


@pytest.mark.frameworks
def test_nothing_secret_is_shown(python: Path, tmp_path: Path) -> None:
    secret = ReplyTask(
        id="secret",
        prompt=(user("A riddle."),),
        tools=(WEATHER,),
        rule=Combined(parts=(Weighted(name=SECRET, rule=Answer(match=Exact(expected=(SECRET,)))),)),
        replies={"reference": Reply(text=SECRET), SECRET: Reply(text="x", reward=0.5)},
        metadata={"answer": SECRET},
        native={"table": {"answer": SECRET}},
        origin=SECRET,
    )
    out = written(tmp_path / "out", secret)
    assert (out / "taskset.jsonl").read_text("utf-8").count(SECRET) == 7
    for path in out.rglob("*"):
        assert path.name == "taskset.jsonl" or not path.is_file() or SECRET.encode() not in path.read_bytes()
    with serving(python, out) as (address, _):
        assert SECRET not in shown(python, address, "secret")
        *_, done = play(python, address, reset(task_id="secret"), said("wrong"))
        assert done["rewards"] == {SECRET: 0.0, "reward": 0.0}
    planted = msgspec.structs.replace(secret, prompt=(user(SECRET),))
    with serving(python, written(tmp_path / "planted", planted)) as (address, _):
        assert shown(python, address, "secret").count(SECRET) == 4  # so it would be seen


# Validation at the level `runtime`, of the server as README.md starts it: Docker would only build and run it.

VALIDATE = """
import json, os, socket, subprocess, sys, time, urllib.request
from pathlib import Path
from openenv.validation import Level, run_validation
from openenv.validation.types import ProviderCapability

package = json.load(sys.stdin)

class Subject:
    def __init__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.base_url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "uvicorn", "server.app:app", "--port", str(port)]
        # As the image has it, and Docker's provider: a user without a home.
        variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent"}
        self.server = subprocess.Popen(command, cwd=package, env=variables, stdout=sys.stderr)
    def inspect(self):
        return {}
    def logs(self, max_bytes=65536):
        return ""
    def exec(self, argv, timeout_s):
        raise NotImplementedError
    def stop(self):
        self.server.terminate()
        self.server.wait()

class Provider:
    name = "local"
    capabilities = frozenset({ProviderCapability.IMAGE_BUILD})
    supported_network_modes = frozenset({"public", "no-network"})
    def build(self, root, execution):
        assert Path(root, execution.dockerfile).is_file()
        return "sha256:" + "0" * 64
    def start(self, spec):
        subject = Subject()
        for _ in range(300):
            try:
                urllib.request.urlopen(subject.base_url + "/health", timeout=1)
                return subject
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("it does not answer")

report = run_validation(Path(package), max_level=Level.RUNTIME, provider=Provider())
print(json.dumps({check.check_id: [check.status.value, check.evidence] for check in report.results}))
"""


@pytest.mark.frameworks
def test_runtime_validation(quiz: Path, python: Path) -> None:
    """Every check that OpenEnv 0.10.0 implements, but for that of the network, which Docker measures."""
    checks = ask(python, VALIDATE, str(quiz))
    wanted = ("static.manifest", "runtime.startup", "runtime.reward_well_formed", "runtime.observation_schema")
    for check in (*wanted, "runtime.state_contract"):
        assert checks[check][0] == "pass", checks[check]
    assert not {"fail", "error"} & {status for status, _ in checks.values()}
