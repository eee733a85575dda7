"""What a package does in Verifiers besides rewards: conversations, tools, artifacts, trust, ignored files."""

import json
import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from conftest import NAMED, ROOT, Files, ask, make_task

from envconvert import pipeline
from envconvert.formats.catalogue import FORMATS

FEATURES = ROOT / "fixtures" / "harbor" / "features"
PROBE = FORMATS["verifiers"].probe
HARNESSES = ROOT / "formats" / "verifiers" / "harnesses"


def evaluated(
    python: Path, package: Path, work: Path, *options: str, harness: str = "oracle", harnesses: Path = HARNESSES
) -> dict[str, Any]:
    """The one episode of `vf-eval` for a package of one task whose module is `one`, played by a harness of ours."""
    from envconvert.formats.verifiers.stand_in import stand_in

    command = [str(python.with_name("vf-eval")), "one", "--env.agent.runtime.type", "docker", *options]
    command += ["--env.agent.harness.id", f"envconvert-{harness}", "--no-push", "--no-rich", "-o", str(work)]
    path = os.pathsep.join([str(package), str(HARNESSES), str(harnesses)])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "STAND_IN_KEY": "none"}
    with stand_in() as address:
        command += ["--model", "stand-in", "--client.base-url", address, "--client.api-key-var", "STAND_IN_KEY"]
        done = subprocess.run(command, env=environment, cwd=work, capture_output=True, text=True)
    traces = next(work.glob("**/traces.jsonl"), None)
    assert traces is not None, done.stderr
    episode: dict[str, Any] = json.loads(traces.read_text().splitlines()[0])
    return episode


def package_of(folder: Path, target: Path, tasks: str | None = None) -> Path:
    """The tasks of `folder` as a package whose module is `one`."""
    pipeline.convert(folder, target, to="verifiers", name="org/one", tasks=tasks)
    return target


def opening(episode: dict[str, Any]) -> list[int]:
    """How long the conversations of a rollout are, in messages, in their order."""
    lengths: list[int] = []
    for node in episode["traces"][0]["nodes"]:
        if node.get("parent") is None:
            lengths.append(0)
        lengths[-1] += 1
    return lengths


@pytest.mark.docker
@pytest.mark.frameworks
@pytest.mark.parametrize(("options", "lengths"), [((), [2, 2, 2]), (("--env.keep-conversation", "true"), [6])])
def test_each_step_begins_a_conversation_unless_it_is_kept(
    tmp_path: Path, docker: str, verifiers_python: Path, options: tuple[str, ...], lengths: list[int]
) -> None:
    package = package_of(FEATURES, tmp_path / "package", "steps-mean")
    work = tmp_path / "work"
    work.mkdir()
    episode = evaluated(verifiers_python, package, work, *options)
    assert opening(episode) == lengths  # three steps, each a prompt and a reply
    trace = episode["traces"][0]
    assert trace["rewards"] == {"reward": {"score": 0.5, "weight": 1.0}}
    assert trace["metrics"] == {"north/reward": 1.0, "east/reward": 0.5, "south/reward": 0.0}
    assert [step["name"] for step in trace["info"]["steps"]] == ["north", "east", "south"]


@pytest.mark.docker
@pytest.mark.frameworks
def test_an_earlier_trajectory_comes_before_the_prompt(tmp_path: Path, docker: str, verifiers_python: Path) -> None:
    said = [
        {"step_id": 1, "source": "user", "message": "Which colour?"},
        {
            "step_id": 2,
            "source": "agent",
            "message": "I look.",
            "tool_calls": [{"tool_call_id": "c1", "function_name": "look", "arguments": {"at": "wall"}}],
            "observation": {"results": [{"source_call_id": "c1", "content": "green"}]},
        },
    ]
    make_task(tmp_path / "set" / "task", files={"trajectory.json": json.dumps({"steps": said})})
    package = package_of(tmp_path / "set", tmp_path / "package")
    script = """
import json, sys
sys.path.insert(0, json.load(sys.stdin))
import verifiers.v1 as vf
[task] = vf.load_taskset(vf.taskset_config_type("one").model_validate({"id": "one"}))
print(json.dumps([message.model_dump(exclude_none=True) for message in task.data.prompt]))
"""
    assert ask(verifiers_python, script, str(package)) == [
        {"role": "user", "content": "Which colour?"},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [{"id": "c1", "type": "function", "name": "look", "arguments": '{"at": "wall"}'}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "green"},
        {"role": "user", "content": "Write 42 to answer.txt.\n"},
    ]


TOOLS = """
import asyncio, importlib, json, sys
said = json.load(sys.stdin)
sys.path.insert(0, said["package"])
tools = importlib.import_module("one.tools")
server = importlib.import_module("one.runner.task_toml").McpServer.model_validate(said["server"])
[toolset] = tools.toolsets([server], tools.Place(container=said["container"]))
async def main():
    await toolset.setup()
    names = [tool.name for tool in await toolset.list_tools()]
    result = await toolset.call_tool(said["tool"], said["arguments"])
    await toolset._exit_stack.aclose()
    return [names, result.content[0].text]
print(json.dumps(asyncio.run(main())))
"""


@pytest.mark.docker
@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("task", "tool", "arguments", "answer"),
    [("mcp-stdio", "weigh", {"fruit": "apple"}, "150"), ("mcp-http", "track", {"line": "coast"}, "3")],
)
def test_a_tool_in_the_container_is_called_through_the_bridge(
    tmp_path: Path,
    docker: str,
    verifiers_python: Path,
    task: str,
    tool: str,
    arguments: dict[str, str],
    answer: str,
) -> None:
    package = package_of(FEATURES, tmp_path / "package", task)
    [server] = tomllib.loads((FEATURES / task / "task.toml").read_text())["environment"]["mcp_servers"]
    image = f"localhost/envconvert-tests/{task}:1"
    build = [docker, "build", "-q", "-t", image, str(FEATURES / task / "environment")]
    subprocess.run(build, check=True, capture_output=True)
    start = [docker, "run", "-d", "--rm", image, "sleep", "infinity"]
    container = subprocess.run(start, check=True, capture_output=True, text=True).stdout.strip()
    try:
        said = {"package": str(package), "server": server, "container": container, "tool": tool, "arguments": arguments}
        assert ask(verifiers_python, TOOLS, said) == [[tool], answer]
    finally:
        subprocess.run([docker, "rm", "-f", container], check=True, capture_output=True)
        subprocess.run([docker, "rmi", image], check=True, capture_output=True)


@pytest.mark.docker
@pytest.mark.frameworks
def test_artifacts_are_kept_where_a_folder_is_named(tmp_path: Path, docker: str, verifiers_python: Path) -> None:
    toml = 'artifacts = ["answer.txt", { source = "/srv/out", destination = "results", exclude = ["*.tmp"] }]\n'
    solve = "#!/bin/bash\nmkdir -p /srv/out\necho 42 > /answer.txt\necho a > /srv/out/a.txt\ntouch /srv/out/b.tmp\n"
    image = '[environment]\ndocker_image = "debian:bookworm-slim"\n'
    make_task(tmp_path / "set" / "task", toml + NAMED + image, {"solution/solve.sh": solve})
    package = package_of(tmp_path / "set", tmp_path / "package")
    work = tmp_path / "work"
    work.mkdir()
    kept = tmp_path / "kept"
    episode = evaluated(verifiers_python, package, work, "--env.taskset.task.artifacts", str(kept))
    rollout = kept / "task" / episode["traces"][0]["id"]
    files = {path.relative_to(rollout).as_posix(): path.read_text() for path in rollout.rglob("*") if path.is_file()}
    assert files == {"answer.txt": "42\n", "results/a.txt": "a\n"}


@pytest.mark.docker
@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("asks", "said"),
    [
        ("volumes: ['/etc:/host:ro']", "main mounts /etc"),
        ("privileged: true", "main has privileged"),
        ("network_mode: host", "main has network_mode = host"),
        ("ports: ['127.0.0.1:18431:80']", "main publishes a port of this machine"),
        ("env_file: /etc/os-release", "main takes its environment from /etc/os-release"),
        ("secrets: [hosts]\nsecrets:\n  hosts: {file: /etc/hosts}", "secrets.hosts is read from elsewhere"),
        (
            "volumes: ['etc:/host']\nvolumes:\n  etc: {driver_opts: {type: none, o: bind, device: /etc}}",
            "volumes.etc is not the project's own",
        ),
    ],
)
def test_a_compose_file_that_reaches_for_the_machine_is_run_only_when_trusted(
    tmp_path: Path, docker: str, verifiers_python: Path, asks: str, said: str
) -> None:
    files: Files = {"environment/docker-compose.yaml": f"services:\n  main:\n    {asks}\n"}
    make_task(tmp_path / "set" / "task", files=files)
    package = package_of(tmp_path / "set", tmp_path / "package")
    work = tmp_path / "work"
    work.mkdir()
    episode = evaluated(verifiers_python, package, work)
    errors = json.dumps(episode["errors"])
    assert said in errors
    assert "--env.taskset.task.trust-compose true" in errors


EXCLUDED = """
import json, sys
from pathlib import Path
said = json.load(sys.stdin)
{imports}
task = Path(said["task"])
print(json.dumps(sorted(
    path.relative_to(task).as_posix()
    for folder in ("tests", "solution")
    for path in (task / folder).rglob("*")
    if {excluded}
)))
"""
OURS = EXCLUDED.format(
    imports='sys.path.insert(0, said["package"])\nfrom one.runner.ignores import excluder',
    excluded="excluder(task, task / folder)(path)",
)
HARBORS = EXCLUDED.format(
    imports="from harbor.models.task.file_filter import TaskFileFilter",
    excluded="TaskFileFilter(task).is_excluded(path)",
)


@pytest.mark.frameworks
def test_the_same_files_are_ignored_as_in_harbor(tmp_path: Path, harbor_python: Path, verifiers_python: Path) -> None:
    files: Files = {
        "tests/.harborignore": "*.md\n!keep.md\n/only-here\nfolder/\n**/deep/*.txt\n",
        "tests/a.md": "",
        "tests/keep.md": "",
        "tests/only-here": "",
        "tests/sub/only-here": "",
        "tests/sub/folder/x": "",
        "tests/sub/.harborignore": "!b.md\n*.py\n",
        "tests/sub/b.md": "",
        "tests/sub/c.py": "",
        "tests/x/deep/d.txt": "",
        "solution/.harborignore": "notes\n",
        "solution/notes": "",
        "solution/other": "",
    }
    folder = make_task(tmp_path / "set" / "task", files=files)
    (folder / "tests" / "link").symlink_to("a.md")
    package = package_of(tmp_path / "set", tmp_path / "package")
    said = {"task": str(folder), "package": str(package)}
    harbors = ask(harbor_python, HARBORS, said)
    assert ask(verifiers_python, OURS, said) == harbors
    assert {"tests/a.md", "tests/link", "tests/sub/folder/x", "solution/notes"} < set(harbors)


SECRET = "PLANTED-SECRET"
SPY = r"""
part=SECRET
find / -xdev -type f -exec grep -l "PLANTED-$part" {} + 2>/dev/null | xargs -r cat
env
cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/[0-9]*/mountinfo 2>/dev/null | tr '\\0' '\\n'
ls -laR /tests /solution /logs /tmp /root 2>/dev/null
"""
"""Looks for the secret in files, processes and mounts; written so that it is not what it finds."""

SPYING = f"""
import json
import os
from pathlib import Path

import verifiers.v1 as vf
from envconvert_turn import take_turn

__all__ = ["SpyHarness"]


class SpyHarness(vf.Harness[vf.HarnessConfig]):
    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        await take_turn(ctx, runtime, endpoint, secret, data)
        seen = await runtime.run(["bash", "-c", {SPY!r}], {{}})
        await runtime.run(["bash", "-c", "part=SECRET; echo PLANTED-$part > /var/tmp/planted"], {{}})
        sees = await runtime.run(["bash", "-c", {SPY!r}], {{}})
        found = {{"seen": seen.stdout, "sees": sees.stdout, "data": data.model_dump(mode="json")}}
        Path(os.environ["SPY_FOUND"]).write_text(json.dumps(found))
        return vf.ProgramResult(0, "", "")
"""
"""A harness that runs the search as the agent, plants the secret, and runs the search again."""


@pytest.mark.docker
@pytest.mark.frameworks
@pytest.mark.parametrize("user", ["root", "agent"])
def test_tests_and_solution_are_kept_from_the_agent(
    user: str, tmp_path: Path, docker: str, verifiers_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = f'env = {{ KEY = "{SECRET}" }}\n'
    toml = f'{NAMED}[agent]\nuser = "{user}"\n[verifier]\n{keys}[solution]\n{keys}'
    tests = f"#!/bin/bash\n# {SECRET}\necho {SECRET}\necho 1 > /logs/verifier/reward.txt\n"
    solution = f"#!/bin/bash\necho {SECRET}\n"
    files = {"tests/test.sh": tests, "solution/solve.sh": solution}
    files["environment/Dockerfile"] = "FROM debian:bookworm-slim\nRUN useradd --create-home agent\n"
    make_task(tmp_path / "src" / "task", toml, files)
    package = package_of(tmp_path / "src", tmp_path / "package")
    (tmp_path / "spies").mkdir()
    (tmp_path / "spies" / "envconvert_spy.py").write_text(SPYING, "utf-8")
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("SPY_FOUND", str(tmp_path / "found.json"))
    episode = evaluated(verifiers_python, package, tmp_path / "work", harness="spy", harnesses=tmp_path / "spies")
    found = json.loads((tmp_path / "found.json").read_text("utf-8"))
    assert SECRET in found["sees"]  # it would be found
    assert SECRET not in json.dumps([found["seen"], found["data"]])
    assert "test.sh" not in found["seen"]
    assert "solve.sh" not in found["seen"]
    assert [reward["score"] for reward in episode["traces"][0]["rewards"].values()] == [1.0]
