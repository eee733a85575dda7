"""Tasks of several steps, and tests with a container of their own: read as Harbor reads them, written from parts."""

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import TOML, Files, ask, make_files, make_task, snapshot

import envconvert
from envconvert.formats.catalogue import FORMATS
from envconvert.formats.files import Target, Tree
from envconvert.formats.losses import Ledger, Loss
from envconvert.formats.taskset import ContainerTask, Healthcheck, NetworkPolicy, Step, Steps, own_container

TWO = f'{TOML}[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n'
SCRIPT = "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n"
FOLDERS: Files = {
    "instruction.md": None,
    "steps/one/instruction.md": "First.\n",
    "steps/two/instruction.md": "Second.\n",
}
OWN: Files = {
    **FOLDERS,
    "tests/test.sh": None,
    "solution/solve.sh": None,
    **{f"steps/{step}/tests/test.sh": SCRIPT for step in ("one", "two")},
    **{f"steps/{step}/solution/solve.sh": "true\n" for step in ("one", "two")},
}


def read_all(source: Path) -> tuple[list[ContainerTask], list[Loss]]:
    ledger = Ledger()
    return list(envconvert.read(source, format="harbor").container_tasks(ledger)), ledger.losses


def read_one(folder: Path, toml: str = TWO, files: Files = FOLDERS) -> ContainerTask:
    tasks, losses = read_all(make_task(folder / "task", toml, files))
    assert len(tasks) == 1, losses
    return tasks[0]


def steps_of(task: ContainerTask) -> tuple[Step, ...]:
    assert isinstance(task.interaction, Steps)
    return task.interaction.steps


def paths(tree: Tree | None) -> list[str]:
    return [] if tree is None else list(tree.files())


# Steps as parts.


def test_a_step_says_what_its_table_and_its_folder_say(tmp_path: Path) -> None:
    toml = f"""
artifacts = ["/task"]
{TOML}
[agent]
user = "worker"
timeout_sec = 60
[verifier]
timeout_sec = 1
env = {{A = "task"}}
[solution.env]
LEVEL = "1"
[[steps]]
name = "one"
min_reward = {{reward = 1, style = 0.5}}
artifacts = ["/step"]
[steps.agent]
timeout_sec = 5
user = 0
network_mode = "no-network"
[steps.verifier]
timeout_sec = 7
env = {{A = "step"}}
user = "root"
[[steps.verifier.collect]]
command = "dump"
[steps.healthcheck]
command = "up"
[[steps]]
name = "two"
min_reward = 1
"""
    files: Files = {
        **FOLDERS,
        "steps/one/workdir/setup.sh": "true\n",
        "steps/one/workdir/data/in.csv": "1",
        "steps/one/tests/test.sh": SCRIPT,
        "steps/one/solution/solve.sh": "true\n",
        "steps/one/trajectory.json": "{}",
    }
    task = read_one(tmp_path, toml, files)
    one, two = steps_of(task)
    assert paths(one.setup) == ["data/in.csv", "setup.sh"]
    assert (one.user, one.network) == (0, NetworkPolicy(mode="no-network"))
    assert (one.limits.agent, one.limits.tests, one.healthcheck) == (5.0, 7.0, Healthcheck(command="up"))
    assert (dict(one.tests.env), one.tests.user, one.tests.artifacts) == ({"A": "step"}, "root", ("/step",))
    assert ([item.command for item in one.tests.collect], paths(one.tests.files)) == (["dump"], ["test.sh"])
    assert one.reference is not None
    assert (paths(one.reference.files), dict(one.reference.env)) == (["solve.sh"], {"LEVEL": "1"})
    assert (one.gate, two.gate) == ({"reward": 1.0, "style": 0.5}, 1.0)
    assert paths(one.resumes) == ["trajectory.json"]
    assert (two.setup, two.user, two.network, two.healthcheck, two.reference) == (None,) * 5
    assert (two.limits.agent, two.limits.tests) == (None, 600.0)  # Harbor's steps do not take over the task's 1 s
    assert (two.tests.files, two.tests.container, two.tests.separate, two.tests.user) == (None,) * 4
    assert (dict(task.tests.env), task.tests.artifacts) == ({"A": "task"}, ("/task",))


def test_variables_of_steps_are_needed(tmp_path: Path) -> None:
    toml = (
        f'{TOML}[verifier.environment.env]\nC = "${{C}}"\n[[steps]]\nname = "one"\n[steps.verifier.env]\nA = "${{A}}"\n'
    )
    assert read_one(tmp_path, toml).needs.variables == ("A", "C")


def test_a_solution_folder_without_its_script_hides_the_solution_of_the_task(tmp_path: Path) -> None:
    """As in Harbor, which then fails to play it."""
    make_task(tmp_path / "task", TWO, {**FOLDERS, "steps/two/solution/notes.md": "1"})
    [task], losses = read_all(tmp_path)
    assert [(loss.code, loss.field) for loss in losses] == [("reference-missing", "steps/two/solution")]
    reference = steps_of(task)[1].reference
    assert reference is not None
    assert paths(reference.files) == ["notes.md"]


def test_folders_reached_through_links(tmp_path: Path) -> None:
    """Harbor takes any link that stays in the task."""
    folder = make_task(tmp_path / "task", TWO, {**FOLDERS, "steps/two/instruction.md": None, "shared/test.sh": SCRIPT})
    (folder / "steps" / "two").symlink_to("one")
    (folder / "steps" / "one" / "tests").symlink_to("../../shared")
    one, two = steps_of(read_all(tmp_path)[0][0])
    assert one.prompt == two.prompt
    assert paths(one.tests.files) == paths(two.tests.files) == ["test.sh"]


@pytest.mark.parametrize("change", [{}, {"origin": "elsewhere"}], ids=["unchanged", "changed"])
def test_steps_are_written_from_their_parts(tmp_path: Path, change: dict[str, Any]) -> None:
    files: Files = {
        **OWN,
        "steps/one/workdir/setup.sh": "true\n",
        "steps/one/workdir/empty/": "",
        "steps/one/trajectory.json": "{}",
        "tests/helper.py": "1",
        "tests/.harborignore": "*.md\n",
        "environment/Dockerfile": "FROM scratch\n",
    }
    source = make_task(tmp_path / "s" / "task", TWO, files)
    (source / "steps" / "one" / "workdir" / "setup.sh").chmod(0o755)
    (source / "steps" / "one" / "tests" / "link").symlink_to("test.sh")
    (source / "steps" / "one").chmod(0o700)
    taskset = envconvert.read(tmp_path / "s")
    ledger = Ledger()
    changed = taskset.of(lambda kept: (msgspec.structs.replace(t, native={}, **change) for t in taskset.tasks(kept)))
    FORMATS["harbor"].write(changed, Target(tmp_path / "out"), ledger)
    assert [loss.code for loss in ledger.losses] == []
    written, expected = snapshot(tmp_path / "out" / "tasks" / "task"), snapshot(source)
    toml = written.pop(b"task.toml")[1]
    assert [step["name"] for step in tomllib.loads(toml.decode())["steps"]] == ["one", "two"]
    del expected[b"task.toml"]
    assert written == expected


# What Harbor loads, and what it does not.

SEPARATE = '[verifier]\nenvironment_mode = "separate"\n'
IMAGE = '[verifier.environment]\ndocker_image = "tests:1"\n'

VERDICTS: dict[str, tuple[str, Files, dict[str, str]]] = {
    "tests of the task": (TWO, FOLDERS, {}),
    "tests of the steps": (TWO, OWN, {}),
    "one step without tests": (TWO, {**OWN, "steps/two/tests/test.sh": None}, {}),
    "no step folder": (TWO, {**FOLDERS, "steps/two/instruction.md": None}, {}),
    "no step instruction": (TWO, {**OWN, "steps/two/instruction.md": None}, {}),
    "empty step instruction": (TWO, {**FOLDERS, "steps/two/instruction.md": ""}, {}),
    "step tests are ignored": (TWO, {**OWN, "steps/two/tests/.harborignore": "*.sh\n"}, {}),
    "step tests are ignored, and the task has some": (
        TWO,
        {**FOLDERS, **OWN, "steps/two/tests/.harborignore": "*"},
        {},
    ),
    "tests of the task are ignored": (TWO, {**FOLDERS, "tests/.harborignore": "test.*\n"}, {}),
    "ignored and excepted": (TWO, {**FOLDERS, "tests/.harborignore": "*\n!test.sh\n"}, {}),
    "rules of no effect": (TWO, {**FOLDERS, ".harborignore": "*\n", "steps/one/.harborignore": "*\n"}, {}),
    "rules that are no text": (TWO, {**OWN, "steps/two/tests/.harborignore": b"\xe9\n"}, {}),
    "rules that are none": (TWO, {**FOLDERS, "tests/.harborignore": "!\n"}, {}),
    "a single step's test is ignored": (TOML, {"tests/.harborignore": "test.sh\n"}, {}),
    "a link out of the step": (TWO, FOLDERS, {"steps/one/tests": "../../../elsewhere"}),
    "a link to another step": (TWO, {**FOLDERS, "steps/two/instruction.md": None}, {"steps/two": "one"}),
    "a link to tests elsewhere": (TWO, {**OWN, "steps/two/tests/test.sh": None}, {"steps/two/tests": "../one/tests"}),
    "links in a circle": (TWO, FOLDERS, {"steps/one/tests": "../../steps"}),
    "a script that leads nowhere": (TWO, {**FOLDERS, "tests/test.sh": None}, {"tests/test.sh": "missing.sh"}),
    "an instruction that leads nowhere": (TOML, {"instruction.md": None}, {"instruction.md": "missing.md"}),
    "two steps that clash": (f'{TOML}[[steps]]\nname = "one"\n[[steps]]\nname = "ONE"\n', FOLDERS, {}),
    "a step whose name is a path": (f'{TOML}[[steps]]\nname = "../one"\n', FOLDERS, {}),
    "a step without a name": (f"{TOML}[[steps]]\nmin_reward = 1\n", FOLDERS, {}),
    "a gate that is no number": (f'{TOML}[[steps]]\nname = "one"\nmin_reward = "much"\n', FOLDERS, {}),
    "no steps, and an instruction": (f"steps = []\n{TOML}", {}, {}),
    "no steps, and no instruction": (f"steps = []\n{TOML}", FOLDERS, {}),
    "an image with the tests": (TOML + IMAGE, {"tests/test.sh": None}, {}),
    "an image for the tests, which are not in it": (f"{TOML}[verifier.environment]\n", {"tests/test.sh": None}, {}),
    "a Dockerfile for tests of their own": (TOML + SEPARATE, {"tests/test.sh": None, "tests/Dockerfile": ""}, {}),
    "a compose file for them": (TOML + SEPARATE, {"tests/test.sh": None, "tests/docker-compose.yaml": ""}, {}),
    "a compose file of another name": (TOML + SEPARATE, {"tests/test.sh": None, "tests/compose.yaml": ""}, {}),
    "a Dockerfile beside tests that share": (TOML, {"tests/test.sh": None, "tests/Dockerfile": ""}, {}),
    "separate, like the agent's": (TOML + SEPARATE, {"tests/test.sh": None}, {}),
    "a step with an image": (
        f"{TWO}{IMAGE.replace('verifier', 'steps.verifier')}",
        {**OWN, "steps/two/tests/test.sh": None},
        {},
    ),
    "a step that shares in a separate task": (
        f'{TOML}{IMAGE}[[steps]]\nname = "one"\n[steps.verifier]\nenvironment_mode = "shared"\n',
        {**FOLDERS, "tests/test.sh": None},
        {},
    ),
    "steps with the image of the task": (
        f'{TOML}{IMAGE}[[steps]]\nname = "one"\n',
        {**FOLDERS, "tests/test.sh": None},
        {},
    ),
    "a separate step with the Dockerfile of the task": (
        f'{TOML}[[steps]]\nname = "one"\n[steps.verifier]\nenvironment_mode = "separate"\n',
        {**FOLDERS, "tests/test.sh": None, "tests/Dockerfile": ""},
        {},
    ),
    "a step with a Dockerfile in a task with an image": (
        f'{TOML}{IMAGE}[[steps]]\nname = "one"\n',
        {**FOLDERS, "tests/test.sh": None, "steps/one/tests/Dockerfile": ""},
        {},
    ),
    "a step described anew in a task with an image": (
        f'{TOML}{IMAGE}[[steps]]\nname = "one"\n[steps.verifier.environment]\ncpus = 2\nos = "windows"\n',
        {**FOLDERS, "tests/test.sh": None},
        {},
    ),
    "Windows": (f'{TOML}os = "windows"\n', {"tests/test.sh": None, "tests/test.bat": ""}, {}),
    "Windows, and a script for Linux": (f'{TOML}os = "windows"\n', {}, {}),
    "tests of their own, on the agent's Windows": (
        f'{TOML}os = "windows"\n[verifier.environment]\ncpus = 1\n',
        {"tests/test.sh": None, "tests/test.bat": ""},
        {},
    ),
    "tests of their own, on Linux beside Windows": (
        f'{TOML}os = "windows"\n[verifier.environment]\nos = "linux"\n',
        {},
        {},
    ),
    "tests like the agent's container, described": (
        f'{TOML}memory_mb = 5\nworkdir = "/a"\n[verifier.environment]\nmemory_mb = 9\n',
        {"environment/Dockerfile": ""},
        {},
    ),
}

LOAD = """
import json, sys
from harbor.models.task.task import Task
from harbor.models.task.verifier_mode import resolve_verifier_environment_definition as resolve

def own(task, step):
    found = resolve(task.config, task.paths, step)
    if found is None:
        return None
    config = found.config
    said = [config.docker_image, config.os.value, config.cpus, config.memory_mb, config.workdir]
    return [*said, found.directory.relative_to(task.paths.task_dir).as_posix(), found.bundled_tests]

def answer(folder):
    try:
        task = Task(folder)
    except (OSError, ValueError, RuntimeError):
        return None
    return [own(task, step) for step in task.config.steps or [None]]

print(json.dumps({name: answer(folder) for name, folder in json.load(sys.stdin).items()}))
"""


def ours(folder: Path) -> list[Any] | None:
    """What LOAD asks Harbor, answered by the parts."""
    tasks, _ = read_all(folder)
    if not tasks:
        return None
    [task] = tasks
    steps = steps_of(task) if isinstance(task.interaction, Steps) else (None,)
    return [described(task, step) for step in steps]


def described(task: ContainerTask, step: Step | None) -> list[Any] | None:
    own = own_container(task, step)
    if own is None:
        return None
    container = own.container
    place = "environment"
    if own.bundled:
        # an image needs no build, and Harbor then names the tests of whoever names the image
        named = step is not None and step.tests.container is not None and step.tests.container.image is not None
        built = container.build is not None and step is not None and step.tests.container_build is not None
        place = f"steps/{step.name}/tests" if step is not None and (named or built) else "tests"
        assert container.build is None or container.build.context.root.as_posix().endswith(place)
    said = [container.image, container.os or "linux", container.cpus, container.memory_mb, container.workdir]
    return [*said, place, own.bundled]


def test_harbor_loads_the_same_tasks(tmp_path: Path, harbor_python: Path) -> None:
    make_files(tmp_path / "elsewhere", {"test.sh": SCRIPT})
    folders: dict[str, Path] = {}
    for number, (name, (toml, files, links)) in enumerate(VERDICTS.items()):
        folders[name] = make_task(tmp_path / str(number), toml, files)
        make_files(folders[name] / "environment", {})
        for path, target in links.items():
            (folders[name] / path).parent.mkdir(parents=True, exist_ok=True)
            (folders[name] / path).symlink_to(target)
    theirs = ask(harbor_python, LOAD, {name: str(folder) for name, folder in folders.items()})
    assert {name: ours(folder) for name, folder in folders.items()} == theirs
    assert 10 < sum(answer is None for answer in theirs.values()) < len(theirs) - 10


def test_a_dockerfile_beside_shared_tests_is_one_of_their_files(tmp_path: Path) -> None:
    task = read_one(tmp_path, TOML, {"tests/Dockerfile": "FROM scratch\n"})
    assert own_container(task) is None
    assert paths(task.tests.files) == ["Dockerfile", "test.sh"]
