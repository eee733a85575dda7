"""The Gym root in the real NeMo Gym: loading, sessions, rewards, what an agent may see, what is left behind."""

import json
import os
import re
import shutil
import socket
import subprocess
import threading
import tomllib
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from conftest import IMAGE, ROOT, TOML, Files, ask, interpreter_of, make_task, snapshot

from envconvert import pipeline
from envconvert.formats.nemo_gym.probe import PROBE
from envconvert.formats.probe import Agent, Score

HARBOR = ROOT / "fixtures" / "harbor"
DRIVERS = ROOT / "formats" / "nemo_gym" / "drivers"
AGENTS: tuple[Agent, ...] = ("oracle", "nop")
SECRET = "PLANTED-SECRET"


def expected_in(name: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads((HARBOR / name).read_text("utf-8"))


GROUPS = {"tasks": expected_in("expected.toml"), "features": expected_in("features-expected.toml")}
PASSED_THROUGH = re.compile(r"compose|^steps-|-steps?(-|$)|trajectory")
"""Fixtures that have steps, services or an earlier trajectory: their names say so."""
SCORED = [(group, task) for group, tasks in GROUPS.items() for task in sorted(tasks) if not PASSED_THROUGH.search(task)]


@pytest.fixture(scope="session")
def python() -> Path:
    """The interpreter of the real NeMo Gym."""
    return interpreter_of("nemo-gym")


@pytest.fixture(scope="session")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The fixtures as Gym roots, by group."""
    place = tmp_path_factory.mktemp("gym")
    for group in GROUPS:
        pipeline.convert(HARBOR / group, place / group, to="nemo-gym", name=f"envconvert/{group}")
    return {group: place / group for group in GROUPS}


def root_of(folder: Path, toml: str = TOML, files: Files | None = None) -> Path:
    """A Gym root with one task, `task`, whose server is `set`; no other taskset has its name, which containers bear."""
    make_task(folder / "src" / "task", toml, files)
    pipeline.convert(folder / "src", folder / "out", to="nemo-gym", name=f"{uuid.uuid4().hex}/set")
    return folder / "out"


# Loading.


@pytest.mark.frameworks
@pytest.mark.parametrize("group", GROUPS)
def test_every_task_loads(python: Path, roots: dict[str, Path], group: str) -> None:
    before = snapshot(roots[group])
    loaded = PROBE.load(python, roots[group])
    assert (sorted(loaded.tasks), loaded.errors) == (sorted(GROUPS[group]), ())
    assert snapshot(roots[group]) == before


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"strict":true', '"strictly":true', "tools"),
        ('"type":"message","role":"user"', '"role":"tool"', "would not reach the model"),
        ('"task_id":"task"', '"task_id":"other"', "its task has no folder"),
        ('"task_id":"task"', '"task_id":"task","task_data":{}', "which are Gym's"),
        ('"task_id":"task"', '"task_id":"task","more":null', "it has nulls for ['more']"),
        ('"task_id":"task"', '"task_id":"task","more":1', "more"),
    ],
)
def test_a_row_that_gym_would_misread_is_told(python: Path, tmp_path: Path, old: str, new: str, said: str) -> None:
    root = root_of(tmp_path)
    file = root / "environments" / "set" / "data" / "train.jsonl"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    loaded = PROBE.load(python, root)
    assert json.loads(file.read_text())["task_id"] not in loaded.tasks
    assert said in " ".join(loaded.errors)


@pytest.mark.frameworks
def test_an_invalid_config_is_told(python: Path, tmp_path: Path) -> None:
    root = root_of(tmp_path)
    file = root / "environments" / "set" / "config.yaml"
    file.write_text(file.read_text().replace("domain: agent", "domain: nothing"))
    loaded = PROBE.load(python, root)
    assert loaded.tasks == ()
    assert "set: " in loaded.errors[0]


# Rewards.


@pytest.fixture(scope="session")
def scores(
    roots: dict[str, Path], docker: str, python: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str, str], Score]:
    """What the server gives for every fixture that it plays, and both agents: made once."""
    runs = [(group, task, agent) for group, task in SCORED for agent in AGENTS]

    def score(run: tuple[str, str, Agent]) -> Score:
        group, task, agent = run
        return PROBE.score(python, roots[group], task, agent, None, tmp_path_factory.mktemp("score"))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(runs, pool.map(score, runs), strict=True))


@pytest.mark.docker
@pytest.mark.frameworks
@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize(("group", "task"), SCORED, ids=[task for _, task in SCORED])
def test_the_server_gives_the_expected_reward(
    scores: dict[tuple[str, str, str], Score], group: str, task: str, agent: Agent
) -> None:
    score, expected = scores[group, task, agent], GROUPS[group][task].get(agent)
    assert score.started
    assert score.reward == pytest.approx(expected, abs=1e-9), score.reason
    assert (score.reason is None) == (score.reward is not None)


@pytest.mark.frameworks
@pytest.mark.parametrize("task", ["compose-sidecar", "steps-mean", "trajectory"])
def test_what_only_harbor_plays_is_not_started(python: Path, roots: dict[str, Path], tmp_path: Path, task: str) -> None:
    score = PROBE.score(python, roots["features"], task, "oracle", None, tmp_path)
    assert (score.reward, score.started) == (None, False)
    assert "Harbor" in str(score.reason)


@pytest.mark.docker
@pytest.mark.frameworks
@pytest.mark.parametrize(("key", "reward"), [("speed", 2.0), ("absent", None)])
def test_another_key_is_trained(python: Path, docker: str, tmp_path: Path, key: str, reward: float | None) -> None:
    tests = """#!/bin/bash\necho '{"accuracy": 1, "speed": 2}' > /logs/verifier/reward.json\n"""
    root = root_of(tmp_path, files={"tests/test.sh": tests})
    (tmp_path / "work").mkdir()
    assert PROBE.score(python, root, "task", "nop", key, tmp_path / "work").reward == reward


# Sessions. A script plays one in NeMo Gym's environment, with the routes of the server.

_SESSION = """
import json, subprocess, sys
asked = json.load(sys.stdin)
sys.path.insert(0, asked["drivers"])
import os
os.environ["NEMO_GYM_EXTRA_ROOTS"] = asked["root"]
from pathlib import Path
from fastapi.testclient import TestClient
from play import RESPONSE, row_of, server_of

root = Path(asked["root"])
row = row_of(root, "set", "task")
server = server_of(root / "resources_servers" / "set", **asked["chosen"])

mark = "label=envconvert.taskset=" + server.manifest.name

def running():
    command = ["docker", "ps", "-aq", "--filter", mark]
    return len(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())

answers = []
with TestClient(server.setup_webserver(), raise_server_exceptions=False) as client:
    for name, body in asked["calls"]:
        if name == "running":
            answers.append(running())
            continue
        if name == "shell":
            done = subprocess.run(["sh", "-c", body, "sh", mark], capture_output=True, text=True, check=True)
            answers.append(done.stdout)
            continue
        said = {"seed_session": row, "verify": {**row, "response": RESPONSE}}.get(name, {})
        got = client.post("/" + name, json={**said, **(body or {})})
        answers.append([got.status_code, got.json()])
print(json.dumps({"row": row, "answers": answers, "left": running()}))
"""

SEED, VERIFY, RUNNING = ("seed_session", None), ("verify", None), ("running", None)
Call = tuple[str, Any]


def bash(command: str) -> Call:
    return ("bash", {"command": command})


def session(python: Path, root: Path, calls: Sequence[Call], **chosen: Any) -> dict[str, Any]:
    """The row, what each call answered, and how many containers were there when the server had ended."""
    found: dict[str, Any] = ask(
        python, _SESSION, {"drivers": str(DRIVERS), "root": str(root), "calls": calls, "chosen": chosen}
    )
    return found


@pytest.mark.docker
@pytest.mark.frameworks
def test_a_session(python: Path, docker: str, tmp_path: Path) -> None:
    tests = '#!/bin/bash\n[ "$(cat /srv/answer.txt)" = 42 ] && echo 1 > /logs/verifier/reward.txt\n'
    toml = f'{TOML}workdir = "/srv"\nenv = {{ COLOUR = "red" }}\n[agent]\nuser = "nobody"\n'
    root = root_of(tmp_path, toml, {"tests/test.sh": tests})
    calls = [
        bash("true"),
        SEED,
        bash("pwd; id -un; echo $COLOUR; echo wrong >&2; exit 3"),
        bash("cd /; export X=1"),
        bash("pwd; echo [$X]; cat"),
        bash("sleep 1000 >/dev/null 2>&1 &"),
        bash("echo 42 > answer.txt"),
        ("shell", 'docker exec -u root $(docker ps -q --filter "$1") chmod 777 /srv'),
        bash("echo 42 > answer.txt"),
        RUNNING,
        VERIFY,
        RUNNING,
        bash("true"),
        VERIFY,
    ]
    found = session(python, root, calls)["answers"]
    early, seeded, said, _, anew, behind, denied, _, allowed, before, verified, after, late, again = found
    assert early[0] == 404
    assert seeded == [200, {}]
    assert said == [200, {"stdout": "/srv\nnobody\nred\n", "stderr": "wrong\n", "exit_code": 3}]
    assert anew == [200, {"stdout": "/srv\n[]\n", "stderr": "", "exit_code": 0}]
    assert behind[1]["exit_code"] == 0
    assert denied[1]["exit_code"] == 1
    assert allowed[1] == {"stdout": "", "stderr": "", "exit_code": 0}
    assert (before, after) == (1, 0)
    assert (verified[0], verified[1]["reward"], verified[1]["rewards"]) == (200, 1.0, {"reward": 1.0})
    assert (verified[1]["mask_sample"], verified[1]["failure_reason"], verified[1]["task_id"]) == (False, None, "task")
    assert late[0] == 404
    assert (again[1]["mask_sample"], again[1]["failure_kind"]) == (True, "session_lost")


@pytest.mark.docker
@pytest.mark.frameworks
def test_output_is_bounded(python: Path, docker: str, tmp_path: Path) -> None:
    root = root_of(tmp_path)
    calls = [
        SEED,
        bash("seq 1000000; seq 1000000 | tr 0-9 a-j >&2; exit 7"),
        bash("head -c 32768 /dev/zero | tr '\\0' x"),
        bash("printf 'no end of line'; printf 'é\\377\\0z' >&2"),
        bash("echo " + "x" * 120_000),
    ]
    _, large, whole, bytes_, long = session(python, root, calls)["answers"]
    lines = large[1]["stdout"].split("\n[the middle of a longer output is left out here]\n")
    assert [len(part) for part in lines] == [16384, 16384]
    assert lines[0].startswith("1\n2\n")
    assert lines[1].endswith("\n1000000\n")
    assert large[1]["stderr"].endswith("\nbaaaaaa\n")
    assert large[1]["exit_code"] == 7
    assert whole[1]["stdout"] == "x" * 32768
    assert (bytes_[1]["stdout"], bytes_[1]["stderr"]) == ("no end of line", "é\ufffd\0z")
    assert long[1]["exit_code"] == 126
    assert "several pieces" in long[1]["stderr"]


@pytest.mark.docker
@pytest.mark.frameworks
def test_a_command_whose_time_is_over_does_not_go_on(python: Path, docker: str, tmp_path: Path) -> None:
    tests = "#!/bin/bash\nsleep 2\nwc -l < /srv/ticks > /logs/verifier/reward.txt\nsleep 2\n"
    tests += "[ $(wc -l < /srv/ticks) = $(cat /logs/verifier/reward.txt) ] || echo 0 > /logs/verifier/reward.txt\n"
    root = root_of(tmp_path, f"{TOML}[agent]\ntimeout_sec = 4\n", {"tests/test.sh": tests})
    tick = "(trap '' TERM HUP; while :; do echo >> /srv/ticks; sleep 0.2; done) & setsid sleep 1000 & wait"
    calls = [SEED, bash(tick), bash("true"), VERIFY]
    _, ticked, late, verified = session(python, root, calls)["answers"]
    assert (ticked[1]["exit_code"], late[1]["exit_code"]) == (124, 124)
    assert "time for this task is over" in ticked[1]["stderr"]
    assert verified[1]["reward"] > 5


SPY = r"""
part=SECRET
find / -xdev -type f -exec grep -l "PLANTED-$part" {} + 2>/dev/null | xargs -r cat
env
cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/[0-9]*/mountinfo 2>/dev/null | tr '\0' '\n'
ls -laR /tests /solution /logs /tmp /root 2>/dev/null
"""
"""Looks for the secret in files, processes and mounts; written so that it is not what it finds."""


@pytest.mark.docker
@pytest.mark.frameworks
@pytest.mark.parametrize("user", ["root", "nobody"])
def test_tests_and_solution_are_kept_from_the_agent(python: Path, docker: str, tmp_path: Path, user: str) -> None:
    tests = f"#!/bin/bash\n# {SECRET}\necho {SECRET}\necho 1 > /logs/verifier/reward.txt\n"
    keys = f'env = {{ KEY = "{SECRET}" }}\n'
    toml = f'{TOML}[agent]\nuser = "{user}"\n[verifier]\n{keys}[solution]\n{keys}'
    root = root_of(tmp_path, toml, {"tests/test.sh": tests, "solution/solve.sh": f"#!/bin/bash\necho {SECRET}\n"})
    planted = bash("part=SECRET; echo PLANTED-$part > /var/tmp/planted")
    calls = [SEED, bash(SPY), planted, bash(SPY), VERIFY, bash(SPY)]
    found = session(python, root, calls)
    seeded, seen, _, sees, verified, after = found["answers"]
    assert SECRET in sees[1]["stdout"]  # it would be found
    for answer in (found["row"], seeded, seen, verified, after):
        assert SECRET not in json.dumps(answer)
    assert not re.search(r"(test|solve)\.sh", seen[1]["stdout"])
    assert verified[1]["reward"] == 1.0


@pytest.mark.docker
@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("tests", "kind", "said"),
    [
        ("#!/bin/bash\necho no reward\n", "verifier_error", "no reward"),
        ("#!/bin/bash\necho nan > /logs/verifier/reward.txt\n", "verifier_error", "finite"),
        ('#!/bin/bash\necho \'{"a": 1, "b": 0}\' > /logs/verifier/reward.json\n', "verifier_error", "['a', 'b']"),
        ("#!/bin/bash\nkill -9 1; kill -TERM 1; sleep 30\n", "provider_unavailable", "sandbox"),
    ],
)
def test_no_reward_is_not_a_reward_of_0(
    python: Path, docker: str, tmp_path: Path, tests: str, kind: str, said: str
) -> None:
    root = root_of(tmp_path, files={"tests/test.sh": tests})
    found = session(python, root, [SEED, VERIFY])
    verified = found["answers"][1][1]
    assert (verified["mask_sample"], verified["failure_kind"]) == (True, kind), verified["failure_reason"]
    assert said in verified["failure_reason"]
    assert verified["rewards"] == {}
    assert found["left"] == 0


@pytest.mark.docker
@pytest.mark.frameworks
def test_a_closed_network(python: Path, docker: str, tmp_path: Path) -> None:
    tests = "#!/bin/bash\nls /sys/class/net | wc -l > /logs/verifier/reward.txt\n"
    toml = f'{TOML}network_mode = "no-network"\n[verifier]\nnetwork_mode = "public"\n'
    root = root_of(tmp_path, toml, {"tests/test.sh": tests})
    _, seen, verified = session(python, root, [SEED, bash("ls /sys/class/net"), VERIFY])["answers"]
    assert seen[1]["stdout"] == "lo\n"
    assert verified[1]["reward"] == 2


@pytest.mark.docker
@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("calls", "running"),
    [
        pytest.param([SEED, RUNNING], 1, id="the server ends"),
        pytest.param([SEED, SEED, RUNNING], 1, id="seeded again"),
        pytest.param(
            [SEED, ("close_session", {"resources_session_id": "x", "episode_id": "e"}), RUNNING], 0, id="closed"
        ),
        pytest.param([("close_session", {"resources_session_id": "x"}), RUNNING], 0, id="never begun"),
    ],
)
def test_no_sandbox_is_left(python: Path, docker: str, tmp_path: Path, calls: list[Call], running: int) -> None:
    found = session(python, root_of(tmp_path), calls)
    assert all(answer[0] == 200 for answer in found["answers"][:-1])
    assert found["answers"][-1] == running
    assert found["left"] == 0


@pytest.mark.docker
@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('workdir = "/missing"\n', "environment.workdir"),
        ('env = { KEY = "${ENVCONVERT_UNSET}" }\n', "ENVCONVERT_UNSET is not set"),
        ('[environment.healthcheck]\ncommand = "false"\nretries = 1\n', "healthcheck"),
    ],
)
def test_a_sandbox_that_cannot_be_prepared(python: Path, docker: str, tmp_path: Path, toml: str, said: str) -> None:
    found = session(python, root_of(tmp_path, TOML + toml), [SEED, RUNNING])
    [status, answer], running = found["answers"]
    assert status == 500
    assert said in answer["detail"]
    assert running == 0


@pytest.mark.docker
@pytest.mark.frameworks
def test_another_row_is_refused(python: Path, docker: str, tmp_path: Path) -> None:
    root = root_of(tmp_path)
    make_task(root / "tasks" / "turns", f'{TOML}[[steps]]\nname = "one"\n', {"steps/one/instruction.md": "Do.\n"})
    ids = ["missing", "..", "../tasks/task", "turns"]
    answers = session(python, root, [("seed_session", {"task_id": id}) for id in ids])["answers"]
    assert [status for status, _ in answers] == [500] * 4
    for _, answer in answers[:3]:
        assert "there is no task" in answer["detail"]
    assert "1 steps, which this server does not do" in answers[3][1]["detail"]


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("toml", "files", "said"),
    [
        ("", {"environment/Dockerfile": f"FROM {IMAGE}\n"}, "only a Dockerfile in environment/"),
    ],
)
def test_another_provider_builds_nothing(
    python: Path, tmp_path: Path, toml: str, files: dict[str, str], said: str
) -> None:
    root = root_of(tmp_path, '[task]\nname = "org/task"\n' + toml, files)
    found = session(python, root, [SEED], sandbox_provider={"local": {}})
    [[status, answer]] = found["answers"]
    assert status == 500
    assert said in answer["detail"]


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("folder", "statement"),
    [
        pytest.param("resources_servers/set", "import app", id="in its folder"),
        pytest.param(".", "import resources_servers.set.app as app", id="in the root, with its folder on the path"),
    ],
)
def test_the_server_is_imported(python: Path, tmp_path: Path, folder: str, statement: str) -> None:
    root = root_of(tmp_path)
    path = "" if folder != "." else str(root / "resources_servers" / "set")
    script = f"{statement}; print(app.TasksetServer.ray_enabled)"
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [python, "-c", script], cwd=root / folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "False\n", done.stderr


# The whole of it: Gym's own processes, and a model that is none.


class _Model(BaseHTTPRequestHandler):
    """Calls the first tool with the command `wanted`, and then says that it is done."""

    wanted = ""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        called = any(item.get("type") == "function_call_output" for item in asked["input"])
        text = {"type": "output_text", "text": "Done.", "annotations": []}
        said = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]}
        call = {
            "type": "function_call",
            "id": "f",
            "call_id": "c",
            "name": asked["tools"][0]["name"],
            "arguments": json.dumps({"command": self.wanted}),
            "status": "completed",
        }
        body = json.dumps(
            {
                "id": "r",
                "object": "response",
                "created_at": 0,
                "model": "stand-in",
                "status": "completed",
                "output": [said if called else call],
                "parallel_tool_calls": True,
                "tool_choice": "auto",
                "tools": asked["tools"],
            }
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def free_port() -> int:
    """Gym's own is the same for every run, and another may be under way."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def model(command: str) -> Iterator[str]:
    """An endpoint whose model runs `command`; gives the URL, which ends in /v1."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Model", (_Model,), {"wanted": command}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.docker
@pytest.mark.frameworks
def test_gym_eval_run(python: Path, docker: str, tmp_path: Path) -> None:
    make_task(
        tmp_path / "src" / "task",
        files={"tests/test.sh": "#!/bin/bash\ngrep -c 42 /srv/answer.txt > /logs/verifier/reward.txt\n"},
    )
    root = tmp_path / "out"
    pipeline.convert(tmp_path / "src", root, to="nemo-gym", name="org/whole")
    before = snapshot(root)
    servers = ["resources_servers/whole", "responses_api_agents/simple_agent", "responses_api_models/openai_model"]
    for server in [*servers, "environment_servers/legacy_agent"]:
        (tmp_path / "venvs" / server).mkdir(parents=True)
        (tmp_path / "venvs" / server / ".venv").symlink_to(python.parent.parent)
    (tmp_path / "work").mkdir()
    rollouts = tmp_path / "work" / "rollouts.jsonl"
    command = [str(python.with_name("gym")), "eval", "run", "--environment", "whole", "--search-dir", str(root)]
    command += ["--split", "train", "--model-type", "openai_model", "--model", "stand-in", "--model-api-key", "none"]
    command += ["--output", str(rollouts), f"+uv_venv_dir={tmp_path / 'venvs'}", "+skip_venv_if_present=true"]
    command += [f"+head_server.port={free_port()}"]
    uv = str(Path(shutil.which("uv") or "uv").parent)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(python.parent), uv, os.environ["PATH"]]),
        "HF_HUB_OFFLINE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with model("echo 42 > /srv/answer.txt") as address:
        done = subprocess.run(
            [*command, "--model-url", address],
            cwd=tmp_path / "work",
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert rollouts.is_file(), done.stdout + done.stderr
    [rollout] = [json.loads(line) for line in rollouts.read_text().splitlines()]
    assert (rollout["task_id"], rollout["reward"], rollout["mask_sample"]) == ("task", 1.0, False)
    called = [item for item in rollout["response"]["output"] if item["type"] == "function_call_output"]
    assert [json.loads(item["output"]) for item in called] == [{"stdout": "", "stderr": "", "exit_code": 0}]
    assert snapshot(root) == before
