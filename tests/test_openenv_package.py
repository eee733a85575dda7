"""The package in the real OpenEnv: validation, Task API, episodes, what an agent may see, what is left behind."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import IMAGE, ROOT, TOML, Files, ask, gate, interpreter_of, make_task, snapshot

from envconvert import pipeline
from envconvert.formats.openenv import fidelity
from envconvert.formats.openenv.probe import PROBE
from envconvert.formats.probe import Agent, Score

HARBOR = ROOT / "fixtures" / "harbor"
AGENTS: tuple[Agent, ...] = ("oracle", "nop")
SECRET = "PLANTED-SECRET"


def expected_in(name: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads((HARBOR / name).read_text("utf-8"))


def is_served(folder: Path) -> bool:
    [task] = pipeline.read(folder).container_tasks()
    return fidelity.not_served(task) is None


GROUPS = {"tasks": expected_in("expected.toml"), "features": expected_in("features-expected.toml")}
PASSED_THROUGH = re.compile(r"compose|^steps-|-steps?(-|$)|trajectory")
"""Fixtures that have steps, services or an earlier trajectory: their names say so."""
SCORED = [(group, task) for group, tasks in GROUPS.items() for task in sorted(tasks) if not PASSED_THROUGH.search(task)]


@pytest.fixture(scope="session")
def openenv_python() -> Path:
    """The interpreter of the real OpenEnv."""
    return interpreter_of("openenv")


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The fixtures as packages, by group."""
    root = tmp_path_factory.mktemp("openenv")
    for group in ("tasks", "features", "unavailable"):
        pipeline.convert(HARBOR / group, root / group, to="openenv", name=f"envconvert/{group}")
    return {group: root / group for group in ("tasks", "features", "unavailable")}


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package of four tasks, of which one is not served; its tests and solution hold a secret."""
    root = tmp_path_factory.mktemp("small")
    files: Files = {
        "instruction.md": "<!-- canary: abc -->\n\nWrite 42 to answer.txt.\n",
        "tests/test.sh": f"#!/bin/bash\n# {SECRET}\ngrep -qx 42 /srv/answer.txt && r=1 || r=0\n"
        'echo "{\\"reward\\": $r, \\"style\\": 0.5}" > /logs/verifier/reward.json\n',
        "solution/solve.sh": f"#!/bin/bash\n# {SECRET}\necho 42 > /srv/answer.txt\n",
    }
    toml = f'{TOML}workdir = "/srv"\n'
    make_task(root / "src" / "a-limited", f"{toml}[agent]\ntimeout_sec = 3\n", files)
    make_task(root / "src" / "b-plain", toml, files)
    make_task(root / "src" / "c-closed", f'{toml}[agent]\nnetwork_mode = "no-network"\n', files)
    make_task(root / "src" / "turns", f'{TOML}[[steps]]\nname = "one"\n', {"steps/one/instruction.md": "Do.\n"})
    pipeline.convert(root / "src", root / "small_env", to="openenv", name="org/small")
    return root / "small_env"


# A server in a process of its own, and a client of OpenEnv's in another.


@contextmanager
def serving(python: Path, package: Path, **variables: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The package as README.md says: its address, and its process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(python), "-m", "uvicorn", "server.app:app", "--port", str(port), "--timeout-graceful-shutdown", "2"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **variables}
    log = package.parent / "server.log"
    with open(log, "wb") as output:
        server = subprocess.Popen(command, cwd=package, env=environment, stdout=output, stderr=output)
    try:
        address = f"http://127.0.0.1:{port}"
        wait_for(f"{address}/health", lambda: server.poll() is None, log)
        yield address, server
    finally:
        server.terminate()
        server.wait(60)


def wait_for(address: str, alive: Any, log: Path) -> None:
    for _ in range(1200):
        try:
            urllib.request.urlopen(address, timeout=5)
        except OSError:
            assert alive(), log.read_text()
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"{address} does not answer: {log.read_text()}")


CLIENT = """
import json, sys
from openenv.core import GenericEnvClient
said = json.load(sys.stdin)
answers = []
with GenericEnvClient(base_url=said["address"], message_timeout_s=600).sync() as env:
    for kind, value in said["calls"]:
        try:
            if kind == "state":
                answers.append(env.state())
                continue
            result = env.reset(**value) if kind == "reset" else env.step(value)
            answers.append({**result.observation, "reward": result.reward, "done": result.done})
        except Exception as error:
            answers.append({"error": str(error)})
print(json.dumps(answers, default=lambda value: value.model_dump()))
"""


def play(python: Path, address: str, *calls: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """What OpenEnv's own client gets in one session: an observation with reward and done, a state or an error each."""
    answers: list[dict[str, Any]] = ask(python, CLIENT, {"address": address, "calls": calls})
    return answers


def run_in(command: str, **said: Any) -> tuple[str, dict[str, Any]]:
    return "step", {"kind": "exec", "command": command, **said}


SUBMIT = ("step", {"kind": "submit"})
STATE: tuple[str, dict[str, Any]] = ("state", {})


def reset(**said: Any) -> tuple[str, dict[str, Any]]:
    return "reset", said


def post(address: str, path: str, **said: Any) -> Any:
    body = json.dumps(said).encode() if said else None
    request = urllib.request.Request(f"{address}/{path}", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def left_behind() -> list[str]:
    """Containers and networks of the small package's servers."""
    found: list[str] = []
    for command in (["ps", "-a", "--format", "{{.Names}}"], ["network", "ls", "--format", "{{.Name}}"]):
        command += ["--filter", "label=envconvert.taskset=org/small"]
        found += subprocess.run(["docker", *command], capture_output=True, text=True, check=True).stdout.split()
    return found


@pytest.fixture(scope="module")
def served(openenv_python: Path, small: Path, docker: str) -> Iterator[str]:
    """The address of the small package's server. When it has stopped, nothing of it is left."""
    before = set(left_behind())
    with serving(openenv_python, small) as (address, _):
        yield address
    assert set(left_behind()) <= before


# Loading.


@pytest.mark.frameworks
def test_the_real_framework_loads_every_fixture(packages: dict[str, Path], openenv_python: Path) -> None:
    """Those with links in them make `openenv validate` refuse the whole package, which is what its loss says."""
    for group, tasks in GROUPS.items():
        loaded = PROBE.load(openenv_python, packages[group])
        assert sorted(loaded.tasks) == sorted(tasks)
        links = [path for path in packages[group].rglob("*") if path.is_symlink()]
        report = json.loads((packages[group] / "envconvert.json").read_text())
        assert bool(links) == ("validation-link" in {loss["code"] for loss in report["losses"]})
        assert [error[:16] for error in loaded.errors] == (["openenv validate"] if links else [])


@pytest.mark.frameworks
def test_a_valid_package_loads_without_an_error_and_is_left_as_it_was(small: Path, openenv_python: Path) -> None:
    before = snapshot(small)
    loaded = PROBE.load(openenv_python, small)
    assert (sorted(loaded.tasks), loaded.errors) == (["a-limited", "b-plain", "c-closed", "turns"], ())
    assert snapshot(small) == before


@pytest.mark.frameworks
def test_the_server_and_the_report_agree_on_what_is_served(packages: dict[str, Path], openenv_python: Path) -> None:
    script = """
import json, sys
package = json.load(sys.stdin)
sys.path.insert(0, package)
from server.tasks import Catalogue
print(json.dumps(sorted(Catalogue(lambda folder: None).refused)))
"""
    for group, package in packages.items():
        report = json.loads((package / "envconvert.json").read_text())
        degraded = sorted(loss["task"] for loss in report["losses"] if loss["code"] == "harness-only")
        assert bool(degraded) == (group != "tasks")
        assert ask(openenv_python, script, str(package)) == degraded


@pytest.mark.frameworks
def test_the_client_is_found_by_its_package(small: Path, openenv_python: Path, tmp_path: Path) -> None:
    """OpenEnv infers the names of the client's and the action's class from the package's (auto/_discovery.py)."""
    shutil.copytree(small, tmp_path / "small_env")
    script = """
import json, sys
sys.path.insert(0, json.load(sys.stdin))
from openenv.auto._discovery import _create_env_info_from_package
found = _create_env_info_from_package("openenv-small_env", "small_env", "1")
print(json.dumps([found.get_client_class().__name__, found.get_action_class().__name__,
                  found.get_observation_class().__name__, "small_env.server.app" in sys.modules]))
"""
    names = ["SmallEnv", "ContainerAction", "ContainerObservation", False]
    assert ask(openenv_python, script, str(tmp_path)) == names


@pytest.mark.frameworks
def test_openenv_push_takes_the_package_for_one(small: Path, openenv_python: Path) -> None:
    script = """
import json, sys
from pathlib import Path
from openenv.cli._cli_utils import validate_env_structure
print(json.dumps(validate_env_structure(Path(json.load(sys.stdin)))))
"""
    assert ask(openenv_python, script, str(small)) == ["Recommended directory missing: outputs/"]


# The Task API.


@pytest.mark.docker
@pytest.mark.frameworks
def test_task_api(served: str) -> None:
    assert "small_env" in str(post(served, "list_environments"))
    assert post(served, "small_env/splits") == [{"name": "train", "type": "train"}]
    assert post(served, "small_env/num_tasks", split="train") == {"num_tasks": 3}
    tasks = post(served, "small_env/tasks", split="train")["tasks"]
    prompt = "Write 42 to answer.txt.\n"
    assert tasks == [
        {"id": id, "split": "train", "index": index, "prompt": prompt}
        for index, id in enumerate(["a-limited", "b-plain", "c-closed"])
    ]
    assert post(served, "small_env/task", split="train", index=2)["task"] == tasks[2]
    assert post(served, "small_env/task_range", split="train", start=1, stop=3)["tasks"] == tasks[1:]


@pytest.mark.docker
@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("path", "said", "status"),
    [
        ("task", {"split": "train", "index": 3}, 400),
        ("task", {"split": "train", "index": -1}, 400),
        ("task_range", {"split": "train", "start": -1}, 400),
        ("task_range", {"split": "train", "stop": 4}, 400),
        ("num_tasks", {"split": "test"}, 500),
    ],
)
def test_task_api_refuses_what_is_not_there(served: str, path: str, said: dict[str, Any], status: int) -> None:
    with pytest.raises(urllib.error.HTTPError) as refusal:
        post(served, f"small_env/{path}", **said)
    assert refusal.value.code in (status, 422)


# Choosing a task.


@pytest.mark.docker
@pytest.mark.frameworks
def test_a_task_is_chosen_by_id_then_by_split_and_index_then_by_seed(served: str, openenv_python: Path) -> None:
    answers = play(
        openenv_python,
        served,
        reset(task_id="b-plain", split="train", index=0, seed=2),
        reset(split="train", index=2, seed=0),
        reset(seed=4),
        reset(),
    )
    assert [answer.get("task_id") for answer in answers] == ["b-plain", "c-closed", "b-plain", "a-limited"]


@pytest.mark.docker
@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"task_id": "nope"}, ["no task 'nope'", "a-limited, b-plain, c-closed"]),
        ({"task_id": "turns"}, ["several steps", "openenv harbor rollout --dataset", "--task-index 3"]),
        ({"split": "test", "index": 0}, ["no split 'test'", "train"]),
        ({"split": "train", "index": 3}, ["no task 3", "3"]),
        ({"split": "train", "index": -1}, ["no task -1"]),
        ({"split": "train"}, ["go together"]),
        ({"index": 1}, ["go together"]),
        ({"split": "train", "index": "1"}, ["index is '1'", "int"]),
        ({"split": "train", "index": True}, ["index is True"]),
        ({"task": "b-plain"}, ["knows no task", "task_id, split, index"]),
        ({"seed": -1}, ["seed is -1"]),
    ],
)
def test_reset_refuses_what_names_no_task(
    served: str, openenv_python: Path, said: dict[str, Any], words: list[str]
) -> None:
    [answer, step] = play(openenv_python, served, reset(**said), SUBMIT)
    assert "EXECUTION_ERROR" in answer["error"]
    for word in words:
        assert word in answer["error"]
    assert "call reset first" in step["error"]


# Episodes.


@pytest.mark.docker
@pytest.mark.frameworks
def test_an_episode(served: str, openenv_python: Path) -> None:
    first, state, told, counted, graded, after, again = play(
        openenv_python,
        served,
        reset(task_id="b-plain", episode_id="mine"),
        STATE,
        run_in("pwd; echo 42 > answer.txt; echo told >&2; exit 3"),
        STATE,
        SUBMIT,
        SUBMIT,
        reset(task_id="b-plain"),
    )
    assert first["instruction"] == "Write 42 to answer.txt.\n"
    assert (first["reward"], first["done"], first["seconds_left"]) == (None, False, None)
    assert state == {"episode_id": "mine", "step_count": 0, "task_id": "b-plain"}
    assert (told["stdout"], told["stderr"], told["exit_code"]) == ("/srv\n", "told\n", 3)
    assert (told["reward"], told["done"]) == (0.0, False)
    assert counted == {"episode_id": "mine", "step_count": 1, "task_id": "b-plain"}
    assert (graded["reward"], graded["done"], graded["rewards"]) == (1.0, True, {"reward": 1.0, "style": 0.5})
    assert "the episode of b-plain is over" in after["error"]
    assert (again["task_id"], again["done"]) == ("b-plain", False)


@pytest.mark.docker
@pytest.mark.frameworks
def test_the_trained_key_is_chosen_for_the_server(small: Path, openenv_python: Path, docker: str) -> None:
    with serving(openenv_python, small, REWARD_KEY="style") as (address, _):
        *_, graded = play(openenv_python, address, reset(task_id="b-plain"), SUBMIT)
    assert (graded["reward"], graded["rewards"]) == (0.5, {"reward": 0.0, "style": 0.5})


@pytest.mark.docker
@pytest.mark.frameworks
def test_after_the_agents_time_commands_are_refused_and_submit_is_graded(served: str, openenv_python: Path) -> None:
    first, cut, refused, graded = play(
        openenv_python,
        served,
        reset(task_id="a-limited"),
        run_in("echo 42 > answer.txt; echo begun; sleep 60", timeout_s=50),
        run_in("echo no > answer.txt"),
        SUBMIT,
    )
    assert 0 < first["seconds_left"] <= 3
    assert (cut["stdout"], cut["exit_code"], cut["seconds_left"]) == ("begun\n", None, 0)
    assert "[stopped after" in cut["stderr"]
    assert (refused["exit_code"], refused["reward"], refused["done"]) == (None, 0.0, False)
    assert "submit" in refused["stderr"]
    assert graded["reward"] == 1.0


@pytest.mark.docker
@pytest.mark.frameworks
def test_a_command_that_is_stopped_leaves_nothing_and_one_in_the_background_goes_on(
    served: str, openenv_python: Path
) -> None:
    running = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done | grep -o '^sleep [0-9][0-9]*' | sort"
    _, begun, stopped, left = play(
        openenv_python,
        served,
        reset(task_id="b-plain"),
        run_in("sleep 301 >/dev/null & echo begun"),
        run_in("sleep 302 & (sleep 303 | sleep 304); sleep 305", timeout_s=1),
        run_in(running),
    )
    assert begun["stdout"] == "begun\n"
    assert stopped["exit_code"] is None
    assert left["stdout"] == "sleep 301\n"


@pytest.mark.docker
@pytest.mark.frameworks
def test_a_long_output_is_cut_and_says_so(served: str, openenv_python: Path) -> None:
    _, said = play(openenv_python, served, reset(task_id="b-plain"), run_in("seq 200000; echo end"))
    whole = len("".join(f"{number}\n" for number in range(1, 200001)) + "end\n")
    assert said["stdout"].startswith("1\n2\n")
    assert said["stdout"].endswith("\nend\n")
    assert f"[{whole - 65536} bytes are left out here]" in said["stdout"]
    assert len(said["stdout"]) < 66000


@pytest.mark.docker
@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("action", "words"),
    [
        ({"kind": "exec"}, "needs a command"),
        ({"kind": "look"}, "VALIDATION_ERROR"),
        ({"kind": "exec", "command": "true", "timeout_s": 0}, "VALIDATION_ERROR"),
        ({"kind": "submit", "reward": 1}, "VALIDATION_ERROR"),
    ],
)
def test_an_action_that_is_none_does_not_end_the_session(
    served: str, openenv_python: Path, action: dict[str, Any], words: str
) -> None:
    _, refused, state = play(openenv_python, served, reset(task_id="b-plain"), ("step", action), STATE)
    assert words in refused["error"]
    assert state["step_count"] == 0


@pytest.mark.docker
@pytest.mark.frameworks
def test_the_network_is_closed_for_the_agent_where_the_task_says_so(served: str, openenv_python: Path) -> None:
    links = run_in("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '")
    _, closed = play(openenv_python, served, reset(task_id="c-closed"), links)
    _, opened = play(openenv_python, served, reset(task_id="b-plain"), links)
    assert closed["stdout"].split() == ["lo"]
    assert "eth0" in opened["stdout"].split()


@pytest.mark.docker
@pytest.mark.frameworks
def test_sessions_do_not_see_one_another(served: str, openenv_python: Path) -> None:
    def session(number: int) -> Any:
        write = run_in(f"echo {number} > answer.txt; sleep 2; cat answer.txt; ls /tmp")
        return play(openenv_python, served, reset(task_id="b-plain"), write)[1]["stdout"]

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(session, [1, 42, 3])) == ["1\n", "42\n", "3\n"]


@pytest.mark.docker
@pytest.mark.frameworks
def test_tests_that_leave_no_reward_are_an_error(tmp_path: Path, openenv_python: Path, docker: str) -> None:
    make_task(tmp_path / "src" / "task", files={"tests/test.sh": "#!/bin/bash\necho why not\n"})
    pipeline.convert(tmp_path / "src", tmp_path / "one_env", to="openenv", name="org/one")
    with serving(openenv_python, tmp_path / "one_env") as (address, _):
        _, graded, after = play(openenv_python, address, reset(), SUBMIT, run_in("ls /tests"))
    assert "EXECUTION_ERROR" in graded["error"]
    assert "why not" in graded["error"]
    assert "is over" in after["error"]


@pytest.mark.docker
@pytest.mark.frameworks
def test_what_an_agent_must_know_of_tools_and_skills(tmp_path: Path, openenv_python: Path, docker: str) -> None:
    toml = (
        TOML + 'skills_dir = "/skills"\n[[environment.mcp_servers]]\nname = "files"\nurl = "http://localhost:1/sse"\n'
    )
    toml += 'headers = { Authorization = "Bearer ${SOME_TOKEN}" }\n'
    make_task(tmp_path / "src" / "task", toml)
    pipeline.convert(tmp_path / "src", tmp_path / "one_env", to="openenv", name="org/one")
    with serving(openenv_python, tmp_path / "one_env", SOME_TOKEN=SECRET) as (address, _):
        [first] = play(openenv_python, address, reset())
    assert first["skills"] == "/skills"
    assert first["mcp_servers"] == [
        {
            "name": "files",
            "transport": "sse",
            "url": "http://localhost:1/sse",
            "command": None,
            "args": [],
            "headers": {"Authorization": "Bearer ${SOME_TOKEN}"},
        }
    ]


# What an agent may see.

PATTERN = "PLANTED-S[E]CRET"  # which does not find itself
SEARCH = (
    f"grep -rIl {PATTERN} / --exclude-dir=proc --exclude-dir=sys 2>/dev/null; "
    f"for p in /proc/[0-9]*; do cat $p/environ $p/cmdline 2>/dev/null; done | grep -ac {PATTERN}; "
    f"find / -name test.sh -o -name solve.sh 2>/dev/null | grep -v ^/proc; "
    f"env | grep {PATTERN}; "
    "ls /tests /solution 2>/dev/null; true"
)
"""What an agent may try; it prints 0 where there is nothing."""


@pytest.mark.docker
def test_the_search_finds_a_secret(docker: str) -> None:
    """In a file, in the environment and in that of another process: else the next test would show nothing."""
    hide = f"mkdir /tests; echo '# {SECRET}' > /tests/test.sh; X={SECRET} sleep 60 & sleep 1; "
    done = subprocess.run([docker, "run", "--rm", IMAGE, "bash", "-c", hide + SEARCH], capture_output=True, text=True)
    said = done.stdout.split()
    assert "/tests/test.sh" in said
    assert "test.sh" in said
    assert "0" not in said
    env = [docker, "run", "--rm", "-e", f"X={SECRET}", IMAGE, "bash", "-c", SEARCH]
    assert f"X={SECRET}" in subprocess.run(env, capture_output=True, text=True).stdout


@pytest.mark.docker
@pytest.mark.frameworks
def test_an_agent_sees_neither_tests_nor_solution(served: str, openenv_python: Path) -> None:
    answers = play(
        openenv_python, served, reset(task_id="b-plain"), STATE, run_in(SEARCH), SUBMIT, run_in(SEARCH), STATE
    )
    assert answers[2]["stdout"].split() == ["0"]
    assert "is over" in answers[4]["error"]
    assert SECRET not in json.dumps(answers)
    for path in ("metadata", "schema", "openapi.json", "state", "small_env/splits"):
        assert SECRET not in json.dumps(post(served, path))
    assert SECRET not in json.dumps(post(served, "small_env/tasks", split="train"))


# What is left behind.


HOLD = """
import os, sys, time
from openenv.core import GenericEnvClient
address, mark, end = sys.argv[1:]
with GenericEnvClient(base_url=address, message_timeout_s=600).sync() as env:
    env.reset(task_id="b-plain")
    open(mark, "w").close()
    if end == "stopped in a step":
        env.step({"kind": "exec", "command": "sleep 600", "timeout_s": 600})
    while os.path.exists(mark):
        time.sleep(0.1)
"""


@pytest.mark.docker
@pytest.mark.frameworks
@pytest.mark.parametrize("end", ["closed", "lost", "stopped", "stopped in a step"])
def test_a_container_goes_with_its_session(
    end: str, small: Path, openenv_python: Path, docker: str, tmp_path: Path
) -> None:
    before = set(left_behind())
    mark = tmp_path / "begun"
    with serving(openenv_python, small) as (address, server):
        client = subprocess.Popen([openenv_python, "-c", HOLD, address, mark, end], stderr=subprocess.DEVNULL)
        until(mark.exists)
        assert len(set(left_behind()) - before) == 2  # the container and the network
        if end == "closed":
            mark.unlink()
        elif end == "lost":
            client.kill()
        else:
            time.sleep(1)  # so that the step is under way
            server.terminate()
            server.wait(60)
        until(lambda: len(set(left_behind()) - before) <= (1 if server.poll() is None else 0))
        client.kill()
        client.wait()
    assert set(left_behind()) <= before


def until(reached: Callable[[], bool]) -> None:
    """Wait for it, a minute at most."""
    for _ in range(600):
        if reached():
            return
        time.sleep(0.1)
    raise AssertionError("it has not come")


# Rewards.


@pytest.fixture(scope="session")
def scores(
    packages: dict[str, Path], docker: str, openenv_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str, Agent], Score]:
    """What each served fixture earns with both agents: some 130 runs, so they are made once."""

    def score(item: tuple[str, str, Agent]) -> Score:
        group, task, agent = item
        work = tmp_path_factory.mktemp("work")
        return PROBE.score(openenv_python, packages[group], task, agent, None, work)

    work = [(group, task, agent) for group, task in SCORED for agent in AGENTS]
    with ThreadPoolExecutor(4) as pool:
        return dict(zip(work, pool.map(score, work), strict=True))


@pytest.mark.docker
@pytest.mark.frameworks
@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize(("group", "task"), SCORED, ids=[task for _, task in SCORED])
def test_openenv_gives_the_expected_reward(
    scores: dict[tuple[str, str, Agent], Score], group: str, task: str, agent: Agent
) -> None:
    score, expected = scores[group, task, agent], GROUPS[group][task].get(agent)
    assert score.started, score.reason
    assert score.reward == pytest.approx(expected, abs=1e-9), score.reason
    assert (score.reason is None) == (expected is not None)


def test_the_fixtures_that_are_not_scored_are_those_that_are_not_served() -> None:
    for group, tasks in GROUPS.items():
        for task in tasks:
            served = is_served(HARBOR / group / task)
            assert served == ((group, task) in SCORED), task


@pytest.mark.frameworks
def test_what_is_not_served_is_not_scored_as_anything(
    packages: dict[str, Path], openenv_python: Path, tmp_path: Path
) -> None:
    score = PROBE.score(openenv_python, packages["features"], "compose-sidecar", "nop", None, tmp_path)
    assert (score.reward, score.started) == (None, False)
    assert "compose" in str(score.reason)


# The server in its own image. No registry is asked: what its Dockerfile takes from others is made of this machine's.

STAND_INS = "localhost/envconvert-tests"


def imported(name: str, files: dict[str, Path]) -> str:
    """An image that holds `files`, by their paths in it."""
    image = f"{STAND_INS}/{name}:1"
    with tempfile.TemporaryFile() as packed:
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for path, source in files.items():
                archive.add(source, path, filter=lambda entry: None if "site-packages/" in entry.name else entry)
        packed.seek(0)
        subprocess.run(["docker", "import", "-", image], stdin=packed, check=True, capture_output=True)
    return image


@pytest.fixture(scope="session")
def build_options(docker: str) -> Iterator[list[str]]:
    """What `docker build` of the server's image is told here. Its tasks' image has the Python that runs this."""
    from uv import find_uv_bin

    docker_cli = imported(
        "docker-cli",
        {
            "usr/local/bin/docker": Path(docker).resolve(),
            "usr/local/libexec/docker/cli-plugins/docker-buildx": _plugin("docker-buildx"),
        },
    )
    uv = imported("uv", {"uv": Path(find_uv_bin())})
    python = imported("python", {"usr/local": Path(sys.base_prefix)})
    base = f"{STAND_INS}/base:1"
    lines = [f"FROM {python} AS python", f"FROM {IMAGE}", "COPY --from=python /usr/local /usr/local", "RUN ldconfig"]
    lines.append(f"RUN /usr/local/bin/python{sys.version_info[0]}.{sys.version_info[1]} -c 'import ssl, sqlite3'")
    built = subprocess.run(
        [docker, "build", "-q", "-t", base, "-"], input="\n".join(lines).encode(), capture_output=True
    )
    if built.returncode:
        gate("docker", f"this Python does not run in {IMAGE}: {built.stderr.decode(errors='replace')[-500:]}")
    arguments = {"TASK_IMAGE": base, "DOCKER_IMAGE": docker_cli, "UV_IMAGE": uv}
    yield [option for name, value in arguments.items() for option in ("--build-arg", f"{name}={value}")]
    subprocess.run([docker, "rmi", "-f", docker_cli, uv, python, base], capture_output=True)


def _plugin(name: str) -> Path:
    places = [
        Path("/usr", folder, "docker/cli-plugins", name) for folder in ("local/lib", "local/libexec", "lib", "libexec")
    ]
    found = next((path for path in places if path.is_file()), None)
    return found or gate("docker", f"there is no {name}")


@pytest.fixture(scope="session")
def image(build_options: list[str], small: Path, docker: str) -> Iterator[str]:
    """The server's image of the small package, built as its README says."""
    name = f"{STAND_INS}/small-server:1"
    command = [docker, "build", "-q", "-t", name, "-f", "server/Dockerfile", *build_options, "."]
    built = subprocess.run(command, cwd=small, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    yield name
    subprocess.run([docker, "rmi", "-f", name], capture_output=True)


@contextmanager
def running(docker: str, image: str, log: Path, *options: str) -> Iterator[tuple[str, str]]:
    """A container of the server: its address and its name. It is stopped as `docker stop` does it."""
    name = f"openenv-tests-{os.urandom(8).hex()}"
    command = [docker, "run", "--detach", "--name", name, "--publish", "127.0.0.1::8000", *options, image]
    subprocess.run(command, check=True, capture_output=True)
    try:
        port = subprocess.run(
            [docker, "port", name, "8000"], check=True, capture_output=True, text=True
        ).stdout.split()[0]
        wait_for(f"http://{port}/health", lambda: name in _running(docker), log)
        yield f"http://{port}", name
        subprocess.run([docker, "stop", "--time", "30", name], check=True, capture_output=True)
    finally:
        subprocess.run([docker, "rm", "--force", name], check=True, capture_output=True)


def _running(docker: str) -> list[str]:
    return subprocess.run([docker, "ps", "--format", "{{.Names}}"], capture_output=True, text=True).stdout.split()


SOCKET = ("--volume", "/var/run/docker.sock:/var/run/docker.sock")


@pytest.fixture(scope="module")
def alone(image: str, docker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that has no Docker engine."""
    log = tmp_path_factory.mktemp("alone") / "log"
    log.touch()
    with running(docker, image, log) as (address, _):
        yield address


@pytest.mark.docker
@pytest.mark.frameworks
def test_without_an_engine_it_serves_the_tasks_of_its_image(alone: str, openenv_python: Path) -> None:
    tasks = post(alone, "small_env/tasks", split="train")["tasks"]
    assert [task["id"] for task in tasks] == ["a-limited", "b-plain"]
    [closed, turns] = play(openenv_python, alone, reset(task_id="c-closed"), reset(task_id="turns"))
    assert "its network is closed. A server that is given a Docker engine plays it" in closed["error"]
    assert "several steps. Harbor runs it: openenv harbor rollout" in turns["error"]


@pytest.mark.docker
@pytest.mark.frameworks
def test_without_an_engine_an_episode_is_played_and_put_back(alone: str, openenv_python: Path) -> None:
    places = "ls -A /srv /tmp /var/tmp /dev/shm ~; ps -eo args | grep -c '[s]leep 40[0-9]'"
    first, who, left, graded, again, found, unsolved = play(
        openenv_python,
        alone,
        reset(task_id="b-plain"),
        run_in("id -u; pwd; echo 42 > answer.txt"),
        run_in(
            "for d in /tmp /var/tmp /dev/shm ~; do touch $d/left; done; mkdir -p /tmp/a/b; (sleep 401 &) ; sleep 402 &"
        ),
        SUBMIT,
        reset(task_id="b-plain"),
        run_in(places),
        SUBMIT,
    )
    assert first["instruction"] == "Write 42 to answer.txt.\n"
    assert who["stdout"] == "64000\n/srv\n"
    assert left["exit_code"] == 0
    assert (graded["reward"], graded["rewards"]) == (1.0, {"reward": 1.0, "style": 0.5})
    assert again["task_id"] == "b-plain"
    assert found["stdout"].split() == ["/dev/shm:", "/home/agent:", "/srv:", "/tmp:", "/var/tmp:", "0"]
    assert unsolved["reward"] == 0.0


@pytest.mark.docker
@pytest.mark.frameworks
def test_without_an_engine_the_agents_time_is_kept(alone: str, openenv_python: Path) -> None:
    _, stopped, refused, left, graded = play(
        openenv_python,
        alone,
        reset(task_id="a-limited"),
        run_in("sleep 403", timeout_s=1),
        run_in("sleep 404"),
        run_in("true"),
        SUBMIT,
    )
    assert (stopped["exit_code"], refused["exit_code"], left["exit_code"]) == (None, None, None)
    assert "[stopped after 1 s]" in stopped["stderr"]
    assert "submit what there is" in left["stderr"]
    assert graded["reward"] == 0.0


@pytest.mark.docker
@pytest.mark.frameworks
def test_without_an_engine_an_agent_sees_neither_tests_nor_solution(alone: str, openenv_python: Path) -> None:
    """Nor can it while the tests are there: what it has left in the background runs beside them."""
    watch = "(for i in $(seq 300); do cat /tests/* /logs/verifier/* 2>/dev/null; sleep 0.1; done) > /tmp/seen & "
    forge = (
        "(for i in $(seq 300); do echo '{\"reward\": 9}' > /logs/verifier/reward.json; sleep 0.1; done) 2>/dev/null & "
    )
    server = "cat /proc/1/environ; ls -d /opt/envconvert/*; python3 -c 'import os; os.setuid(0)'; true"
    answers = play(
        openenv_python,
        alone,
        reset(task_id="b-plain"),
        run_in(SEARCH),
        run_in(server),
        run_in(watch + forge + "echo begun"),
        SUBMIT,
        reset(task_id="b-plain"),
        run_in(SEARCH),
    )
    assert answers[1]["stdout"].split() == ["0"]
    assert answers[2]["stdout"] == ""
    assert (answers[3]["stdout"], answers[4]["reward"]) == ("begun\n", 0.0)
    assert answers[6]["stdout"].split() == ["0"]
    assert SECRET not in json.dumps(answers)


@pytest.mark.docker
@pytest.mark.frameworks
def test_without_an_engine_there_is_one_session(alone: str, openenv_python: Path) -> None:
    """By sessions, and by HTTP requests, which OpenEnv gives an environment of their own."""
    hold = """
import json, sys, urllib.request
from openenv.core import GenericEnvClient
address = json.load(sys.stdin)
said = []
with GenericEnvClient(base_url=address).sync() as env:
    env.reset(task_id="b-plain")
    try:
        with GenericEnvClient(base_url=address).sync() as other:
            other.reset(task_id="b-plain")
    except Exception as error:
        said.append(str(error))
    body = json.dumps({"task_id": "b-plain"}).encode()
    try:
        urllib.request.urlopen(urllib.request.Request(address + "/reset", body, {"Content-Type": "application/json"}))
    except Exception as error:
        said.append(str(error))
    said.append(env.step({"kind": "exec", "command": "echo there"}).observation["stdout"])
print(json.dumps(said))
"""
    capacity, http, there = ask(openenv_python, hold, alone)
    assert "CAPACITY_REACHED" in capacity
    assert "500" in http
    assert there == "there\n"


@pytest.mark.docker
@pytest.mark.frameworks
def test_with_the_socket_it_plays_every_task_in_a_container_of_its_own(
    image: str, openenv_python: Path, docker: str, tmp_path: Path
) -> None:
    before = set(left_behind())
    (tmp_path / "log").touch()
    with running(docker, image, tmp_path / "log", *SOCKET) as (address, _):
        tasks = post(address, "small_env/tasks", split="train")["tasks"]
        assert [task["id"] for task in tasks] == ["a-limited", "b-plain", "c-closed"]
        _, done, graded = play(
            openenv_python, address, reset(task_id="c-closed"), run_in("id -u; echo 42 > answer.txt"), SUBMIT
        )
        assert (done["stdout"], graded["reward"]) == ("0\n", 1.0)
    assert set(left_behind()) <= before


VALIDATE = """
import json, re, subprocess, sys, time, urllib.request
from pathlib import Path
from openenv.validation import Level, run_validation
from openenv.validation.providers import ExecResult
from openenv.validation.types import ProviderCapability

said = json.load(sys.stdin)

class Subject:
    def __init__(self, name):
        self.name = name
        run = ["docker", "port", name, "8000"]
        self.base_url = "http://" + subprocess.run(run, check=True, capture_output=True, text=True).stdout.split()[0]
    def inspect(self):
        return {"provider": "docker-with-socket", "name": self.name}
    def logs(self, max_bytes=65536):
        return ""
    def exec(self, argv, timeout_s):
        raise NotImplementedError
    def stop(self):
        subprocess.run(["docker", "stop", "--time", "30", self.name], check=True, capture_output=True)
        subprocess.run(["docker", "rm", "--force", self.name], check=True, capture_output=True)

class Provider:
    name = "docker-with-socket"
    capabilities = frozenset({ProviderCapability.IMAGE_BUILD})
    supported_network_modes = frozenset({"public"})
    def build(self, root, execution):
        command = ["docker", "build", "-q", "-f", execution.dockerfile, *said["build"], execution.context]
        return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.strip()
    def start(self, spec):
        name = "openenv-tests-" + spec.run_id
        options = ["--name", name, "--publish", "127.0.0.1::8000", *said["options"]]
        subprocess.run(["docker", "run", "--detach", *options, spec.image_ref], check=True, capture_output=True)
        subject = Subject(name)
        for _ in range(300):
            try:
                urllib.request.urlopen(subject.base_url + "/health", timeout=1)
                return subject
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("it does not answer")

report = run_validation(Path(said["package"]), max_level=Level.RUNTIME, provider=Provider())
print(json.dumps({check.check_id: [check.status.value, check.evidence] for check in report.results}))
"""


@pytest.mark.docker
@pytest.mark.frameworks
@pytest.mark.parametrize("options", [SOCKET, ()], ids=["with the socket", "without"])
def test_runtime_validation(
    small: Path, image: str, build_options: list[str], openenv_python: Path, options: tuple[str, ...]
) -> None:
    """Every check that OpenEnv 0.10.0 implements, but for that of the network, which wants a helper of a registry's."""
    said = {"package": str(small), "build": build_options, "options": options}
    checks = ask(openenv_python, VALIDATE, said)
    wanted = ("static.manifest", "runtime.startup", "runtime.reward_well_formed", "runtime.observation_schema")
    for check in (*wanted, "runtime.state_contract"):
        assert checks[check][0] == "pass", checks[check]
    assert not {"fail", "error"} & {status for status, _ in checks.values()}
