"""Writing Harbor: what came from Harbor is carried byte for byte, what was changed is written from its parts."""

import datetime
import hashlib
import json
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import ENVIRONMENT, NAMED, ROOT, TOML, Files, ask, make_files, make_task, snapshot

import envconvert
from envconvert.formats.catalogue import FORMATS
from envconvert.formats.files import Target, walk
from envconvert.formats.harbor import writer
from envconvert.formats.harbor.digest import package_digest
from envconvert.formats.losses import Ledger
from envconvert.formats.taskset import Author, ContainerTask, Limits, Message, NetworkPolicy, Taskset

FIXTURES = ROOT / "fixtures" / "harbor"


def harbor_to_harbor(source: Path, target: Path, **options: Any) -> Path:
    envconvert.convert(source, target, to="harbor", format="harbor", **options)
    return target


def read_one(source: Path) -> ContainerTask:
    [task] = envconvert.read(source, format="harbor").container_tasks()
    return task


def write_changed(source: Path, target: Path, **changes: Any) -> tuple[Path, Ledger]:
    """Write the tasks of `source` with parts changed; the folder of the task `task`."""
    taskset = envconvert.read(source, format="harbor")
    changed = taskset.of(lambda kept: (msgspec.structs.replace(task, **changes) for task in taskset.tasks(kept)))
    ledger = Ledger()
    FORMATS["harbor"].write(changed, Target(target), ledger)
    return target / "tasks" / "task", ledger


# Byte for byte.


def test_everything_in_a_task_is_carried(tmp_path: Path) -> None:
    source = tmp_path / "source"
    task = make_task(
        source / "task",
        f"# canary GUID 1\r\n{TOML}\n\n",
        {
            "instruction.md": b"\n\nNo\r\nend",
            "README.md": "Not shown.",
            "extra/deep/er/file.bin": bytes(range(256)),
            "environment/empty/": "",
            "environment/data.csv": "1",
            "tests/helper.py": "",
            ".hidden": "1",
            "tests/a\nb \\ c": "line end, blank and backslash in the name",
            os.fsdecode(b"environment/caf\xe9"): "not UTF-8",
            "environment/caf\u00e9.txt": "UTF-8",
        },
    )
    for path, mode in (
        ("tests/test.sh", 0o755),
        ("tests/helper.py", 0o600),
        ("environment/data.csv", 0o444),
        ("extra", 0o700),
        ("extra/deep", 0o555),
        ("README.md", 0o4755),
    ):
        (task / path).chmod(mode)
    (task / "tests" / "run").symlink_to("test.sh")
    (task / "tests" / "data").symlink_to("../environment")
    (task / "environment" / "dangling").symlink_to("not-there-yet")
    make_files(source, {"README.md": "of the repository, not of a task"})
    before = snapshot(source)
    report = envconvert.convert(source, tmp_path / "out", to="verifiers", name="org/set")[0]
    assert report.tasks.written == 1
    assert snapshot(tmp_path / "out" / "set" / "tasks" / "task") == snapshot(task)
    assert snapshot(source) == before


def test_names_that_are_not_utf_8_are_carried_to_harbor(tmp_path: Path) -> None:
    task = make_task(tmp_path / "s" / "task", files={os.fsdecode(b"environment/caf\xe9"): "1"})
    harbor_to_harbor(tmp_path / "s", tmp_path / "out")
    assert snapshot(tmp_path / "out/tasks/task") == snapshot(task)


def test_names_that_are_not_utf_8_in_a_task_without_a_name(tmp_path: Path) -> None:
    task = make_task(tmp_path / "s" / "task", ENVIRONMENT, {os.fsdecode(b"environment/caf\xe9"): "1"})
    harbor_to_harbor(tmp_path / "s", tmp_path / "out")
    assert snapshot(tmp_path / "out/tasks/task") == snapshot(task)


def test_the_task_folder_keeps_its_own_mode(tmp_path: Path) -> None:
    make_task(tmp_path / "s" / "task").chmod(0o750)
    harbor_to_harbor(tmp_path / "s", tmp_path / "out")
    assert (tmp_path / "out/tasks/task").stat().st_mode & 0o7777 == 0o750


def test_a_task_that_is_a_link_is_written_as_a_folder(tmp_path: Path) -> None:
    task = make_task(tmp_path / "s" / "one")
    (tmp_path / "s" / "two").symlink_to("one")
    harbor_to_harbor(tmp_path / "s", tmp_path / "out")
    assert not (tmp_path / "out/tasks/two").is_symlink()
    assert snapshot(tmp_path / "out/tasks/two") == snapshot(task)


def test_groups_become_one_folder_each(tmp_path: Path) -> None:
    task = make_task(tmp_path / "s" / "a" / "b" / "c")
    harbor_to_harbor(tmp_path / "s", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "dataset.toml",
        "envconvert.json",
        "registry.json",
        "tasks",
    ]
    assert snapshot(tmp_path / "out/tasks/a--b--c") == snapshot(task)


# From parts.


def test_a_changed_task_is_written_from_its_parts(tmp_path: Path) -> None:
    make_task(
        tmp_path / "s" / "task",
        f"# a comment that only the file has\n{TOML}memory_mb = 512\n",
        {"environment/data.csv": "1,2", "extra.txt": "no part"},
    )
    task = read_one(tmp_path / "s")
    prompt = (Message(role="user", content="Do something else."),)
    container = msgspec.structs.replace(task.container, memory_mb=4096)
    folder, ledger = write_changed(tmp_path / "s", tmp_path / "out", prompt=prompt, container=container)
    assert ledger.written == 1
    assert (folder / "instruction.md").read_text() == "Do something else."
    assert b"a comment" not in (folder / "task.toml").read_bytes()
    written = tomllib.loads((folder / "task.toml").read_text())
    assert (written["environment"]["memory_mb"], written["task"]["name"]) == (4096, "org/task")
    for kept in ("tests/test.sh", "solution/solve.sh", "environment/data.csv"):
        assert (folder / kept).read_bytes() == (tmp_path / "s" / "task" / kept).read_bytes()
    assert not (folder / "extra.txt").exists()


def test_an_unchanged_task_is_written_from_its_files(tmp_path: Path) -> None:
    make_task(tmp_path / "s" / "task", f"# a comment that only the file has\n{TOML}")
    task = read_one(tmp_path / "s")
    folder, _ = write_changed(tmp_path / "s", tmp_path / "out", prompt=task.prompt, limits=task.limits)
    assert b"a comment" in (folder / "task.toml").read_bytes()


@pytest.mark.parametrize(
    "change",
    [
        {"origin": "elsewhere"},
        {"metadata": {"difficulty": "easy"}},
        {"limits": Limits(build=600.0, agent=1.0, tests=600.0)},
        {"reference": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_any_changed_part_counts(tmp_path: Path, change: dict[str, Any]) -> None:
    make_task(tmp_path / "s" / "task", f"# a comment that only the file has\n{TOML}")
    folder, _ = write_changed(tmp_path / "s", tmp_path / "out", **change)
    assert b"a comment" not in (folder / "task.toml").read_bytes()
    if "reference" in change:
        assert not (folder / "solution").exists()


def test_parts_read_back_to_the_same_parts(tmp_path: Path) -> None:
    """A task written from its parts is read to the same parts."""
    make_task(tmp_path / "s" / "task", EVERYTHING, {"environment/Dockerfile": "FROM scratch\n"})
    task = read_one(tmp_path / "s")
    folder, _ = write_changed(tmp_path / "s", tmp_path / "out", native={})
    again = read_one(folder)
    same = ("schema_version", "origin", "package", "prompt", "interaction", "servers", "limits", "needs", "metadata")
    assert {name: getattr(again, name) for name in same} == {name: getattr(task, name) for name in same}
    assert msgspec.structs.replace(again.container, build=None) == msgspec.structs.replace(task.container, build=None)
    for name in ("command", "env", "user", "network", "separate", "artifacts", "collect"):
        assert getattr(again.tests, name) == getattr(task.tests, name)


def test_a_limit_that_is_not_said_is_a_loss(tmp_path: Path) -> None:
    make_task(tmp_path / "s" / "task")
    folder, ledger = write_changed(tmp_path / "s", tmp_path / "out", limits=Limits())
    assert [(loss.code, loss.field) for loss in ledger.losses] == [
        ("limit-default", "limits.build"),
        ("limit-default", "limits.tests"),
    ]
    assert "timeout_sec" not in (folder / "task.toml").read_text()


# task.toml for odd values.

EVERYTHING = r"""
schema_version = "1.2"
source = "a \"quoted\" \\ source"
artifacts = ["/app/a", {source = "/app/b", destination = "b", exclude = ["*.o"]}, "/app/c"]
[task]
name = "org/task"
version = "2.0"
description = "Two\nlines, a tab\t, and control characters \u0000\u001b\u007f"
authors = [{name = "Zoë", email = "z@example.org"}, {name = "日本"}]
keywords = ["ключ", "🙂"]
[metadata]
made = 2026-11-30T12:34:56.789+02:00
local = 2026-11-30T12:34:56
day = 2026-11-30
hour = 07:32:00
high = inf
low = -inf
big = 9007199254740993
mixed = [1, "two", {three = 3.0}, [4]]
empty = {}
"dotted.key" = {"" = 1, "new\nline" = 2}
text = '''it's "both"'''
[agent]
timeout_sec = 1e300
user = "worker"
[verifier]
timeout_sec = inf
user = 0
environment_mode = "separate"
[verifier.env]
A = "${A:-x}"
[verifier.environment]
docker_image = "tests:1"
memory_mb = 1
[[verifier.collect]]
command = "printf '\u0001'"
[environment]
docker_image = "image@sha256:0"
build_timeout_sec = 0.5
cpus = 0.25
memory_mb = 0
gpus = 0
gpu_types = []
network_mode = "allowlist"
allowed_hosts = []
[environment.env]
EMPTY = ""
"WEIRD KEY" = "a=b\u0000"
[environment.healthcheck]
command = "true"
start_period_sec = 0.1
[[environment.mcp_servers]]
name = "s"
transport = "stdio"
command = "serve"
args = ["--x", ""]
[solution.env]
UNICODE = "☃"
"""

STEPS = r"""
multi_step_reward_strategy = "final"
artifacts = ["/app/all"]
[environment]
docker_image = "image"
[agent]
timeout_sec = 60
user = "worker"
[verifier]
timeout_sec = 1
environment_mode = "separate"
[verifier.env]
A = "task"
[solution.env]
LEVEL = "1"
[[steps]]
name = "all of it"
min_reward = 0.5
artifacts = ["/app/a", {source = "/app/b", destination = "b", exclude = ["*.o"]}]
[steps.agent]
timeout_sec = 5
user = 0
network_mode = "allowlist"
allowed_hosts = ["example.org"]
[steps.verifier]
timeout_sec = 7
user = "root"
network_mode = "no-network"
[steps.verifier.env]
A = "step"
B = "${B:-2}"
[steps.verifier.environment]
docker_image = "tests:2"
os = "linux"
build_timeout_sec = 9
[[steps.verifier.environment.mcp_servers]]
name = "inner"
url = "http://inner"
[[steps.verifier.collect]]
command = "dump"
service = "db"
[steps.healthcheck]
command = "up"
retries = 1
[[steps]]
name = "by key"
min_reward = {reward = 1, style = -0.5}
[steps.verifier]
environment_mode = "shared"
[[steps]]
name = "nothing"
"""

VARIANTS = {
    "everything": EVERYTHING,
    "steps": STEPS,
    "one step": f'{TOML}[[steps]]\nname = "é"\n',
    "mean of steps": f'multi_step_reward_strategy = "mean"\n{TOML}[[steps]]\nname = "a"\n',
    "separate, with a server": f"{TOML}[verifier.environment]\ncpus = 2.5\nnetwork_mode = 'no-network'\n"
    "[[verifier.environment.mcp_servers]]\nname = 'a'\nurl = 'http://a'\n[verifier.environment.env]\nA = '1'\n"
    "[verifier.environment.healthcheck]\ncommand = 'up'\n",
    "Windows, and tests on Linux": f"{TOML}os = 'windows'\n[verifier.environment]\nos = 'linux'\n",
    "shortest": TOML,
    "empty": "",
    "defaults spelled out": f"{TOML}build_timeout_sec = 600.0\n[verifier]\ntimeout_sec = 600.0\n[agent]\n",
    "old spellings": f'version = "1.0"\n{TOML}memory = "2G"\nstorage = "512M"\nallow_internet = false\nos = "Linux"\n',
    "no hosts": f"{TOML}allowed_hosts = []\n",
    "empty tables": f"{TOML}[environment.env]\n[verifier.env]\n[metadata]\n[solution]\n",
    "agent may reach nothing": f'{TOML}[agent]\nnetwork_mode = "no-network"\n',
    "separate, described by nothing": f"{TOML}[verifier.environment]\n",
    "shared": f'{TOML}[verifier]\nenvironment_mode = "shared"\n',
    "zero timeouts": f"{TOML}build_timeout_sec = 0\n[agent]\ntimeout_sec = 0\n[verifier]\ntimeout_sec = 0\n",
    "artifact tables": f'artifacts = [{{source = "/a"}}, {{source = "/b", service = "db"}}]\n{TOML}',
    "server with headers": f'{TOML}[[environment.mcp_servers]]\nname = "a"\ntransport = "http"\nurl = "http://a"\n'
    'headers = {"X-Key" = "${KEY}"}\n',
    "tpu": f'{TOML}[environment.tpu]\ntype = "v5e"\ntopology = "2x2"\n',
}


def from_parts(folder: Path, toml: str) -> tuple[str, str]:
    """`toml`, and what is written from the parts that are read from it."""
    said = tomllib.loads(toml)
    files: dict[str, str] = {f"steps/{step['name']}/instruction.md": "Do." for step in said.get("steps", [])}
    if "docker_image" not in said.get("environment", {}):
        files["environment/Dockerfile"] = "FROM scratch\n"
    task = read_one(make_task(folder, toml, files))
    return toml, writer.task_toml(msgspec.structs.replace(task, native={}))


def test_odd_values_survive(tmp_path: Path) -> None:
    toml, written = from_parts(tmp_path / "task", EVERYTHING)
    said, meant = tomllib.loads(written), tomllib.loads(toml)
    assert said["metadata"] == meant["metadata"]
    assert said["metadata"]["made"] == datetime.datetime(
        2026, 11, 30, 12, 34, 56, 789000, datetime.timezone(datetime.timedelta(hours=2))
    )
    assert said["task"] == meant["task"]
    assert said["artifacts"] == ["/app/a", {"source": "/app/b", "destination": "b", "exclude": ["*.o"]}, "/app/c"]
    assert said["verifier"]["timeout_sec"] == float("inf")
    assert said["environment"]["env"] == {"EMPTY": "", "WEIRD KEY": "a=b\0"}
    assert said["environment"]["cpus"] == 0.25
    assert "\0" not in written


def test_a_metadata_value_that_is_not_a_number(tmp_path: Path) -> None:
    _, written = from_parts(tmp_path / "task", f"{TOML}[metadata]\nx = nan\n")
    assert tomllib.loads(written)["metadata"]["x"] != tomllib.loads(written)["metadata"]["x"]


def test_root_keys_come_before_tables(tmp_path: Path) -> None:
    """In TOML, what follows a table's header belongs to the table."""
    _, written = from_parts(tmp_path / "task", EVERYTHING)
    roots = [line.split(" ")[0] for line in written.partition("\n[")[0].splitlines() if "=" in line]
    assert [name for name in roots if name in ("schema_version", "source", "artifacts")] == [
        "schema_version",
        "source",
        "artifacts",
    ]


def test_harbor_reads_the_same_configuration(tmp_path: Path, harbor_python: Path) -> None:
    pairs = {name: from_parts(tmp_path / str(i), toml) for i, (name, toml) in enumerate(VARIANTS.items())}
    script = """
import json, sys
from harbor.models.task.config import TaskConfig
answers = {}
for name, (ours, theirs) in json.load(sys.stdin).items():
    ours, theirs = TaskConfig.model_validate_toml(ours), TaskConfig.model_validate_toml(theirs)
    answers[name] = None if ours == theirs else [repr(ours), repr(theirs)]
print(json.dumps(answers))
"""
    assert ask(harbor_python, script, pairs) == dict.fromkeys(VARIANTS)


def test_harbor_reads_the_same_configuration_of_the_fixtures(harbor_python: Path) -> None:
    pairs = {}
    for folder in ("tasks", "nested"):
        for task in envconvert.read(FIXTURES / folder, format="harbor").container_tasks():
            toml = (task.native["harbor"].files.root / "task.toml").read_text()
            pairs[task.id] = [writer.task_toml(msgspec.structs.replace(task, native={})), toml]
    assert pairs
    script = """
import json, sys
from harbor.models.task.config import TaskConfig
read = TaskConfig.model_validate_toml
print(json.dumps([name for name, (ours, theirs) in json.load(sys.stdin).items() if read(ours) != read(theirs)]))
"""
    assert ask(harbor_python, script, pairs) == []


# registry.json and dataset.toml.


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Three tasks, the last without a name of its own, and what is written of them."""
    source = tmp_path / "My set"
    make_task(source / "b", '[task]\nname = "org/bee"\n' + ENVIRONMENT)
    make_task(source / "a" / "x", '[task]\nname = "org/ax"\n' + ENVIRONMENT)
    make_task(source / "c", ENVIRONMENT)
    make_files(
        source,
        {
            "dataset.toml": '[dataset]\nname = "org/other"\nversion = "1.2.0"\ndescription = "All of it."\n'
            'keywords = ["k"]\nauthors = [{name = "Ann", email = "a@b.c"}, {name = "Bob"}]\n'
        },
    )
    return harbor_to_harbor(source, tmp_path / "out", name="org/set")


def test_registry(dataset: Path) -> None:
    assert json.loads((dataset / "registry.json").read_bytes()) == [
        {
            "name": "set",
            "version": "1.2.0",
            "description": "All of it.",
            "tasks": [
                {"name": "a--x", "path": "tasks/a--x"},
                {"name": "b", "path": "tasks/b"},
                {"name": "c", "path": "tasks/c"},
            ],
        }
    ]


def test_dataset(dataset: Path) -> None:
    """A task without [task].name is left out, with a note. The digest is that of 6.4, by hand."""
    assert tomllib.loads((dataset / "dataset.toml").read_text()) == {
        "dataset": {
            "name": "org/set",
            "version": "1.2.0",
            "description": "All of it.",
            "authors": [{"name": "Ann", "email": "a@b.c"}, {"name": "Bob"}],
            "keywords": ["k"],
        },
        "tasks": [
            {"name": "org/ax", "digest": by_hand(dataset / "tasks/a--x", *PUBLISHED)},
            {"name": "org/bee", "digest": by_hand(dataset / "tasks/b", *PUBLISHED)},
        ],
    }
    losses = json.loads((dataset / "envconvert.json").read_bytes())["losses"]
    assert [(loss["code"], loss["task"], loss["severity"]) for loss in losses] == [("package-unnamed", "c", "note")]


def test_a_set_without_a_version_is_head(tmp_path: Path) -> None:
    make_task(tmp_path / "s" / "task")
    out = harbor_to_harbor(tmp_path / "s", tmp_path / "out")
    [entry] = json.loads((out / "registry.json").read_bytes())
    assert (entry["name"], entry["version"], entry["description"]) == ("s", "head", "")
    assert tomllib.loads((out / "dataset.toml").read_text())["dataset"] == {"name": "local/s"}


def test_a_refused_task_is_in_neither(tmp_path: Path) -> None:
    make_task(tmp_path / "s" / "good")
    make_task(tmp_path / "s" / "bad", "[")
    out = harbor_to_harbor(tmp_path / "s", tmp_path / "out")
    [entry] = json.loads((out / "registry.json").read_bytes())
    assert [task["name"] for task in entry["tasks"]] == ["good"]
    assert len(tomllib.loads((out / "dataset.toml").read_text())["tasks"]) == 1


def test_harbor_reads_both(dataset: Path, harbor_python: Path) -> None:
    script = """
import json, sys
from pathlib import Path
from harbor.models.dataset.manifest import DatasetManifest
from harbor.models.registry import Registry
folder = Path(json.load(sys.stdin))
[listed] = Registry.from_path(folder / "registry.json").datasets
manifest = DatasetManifest.from_toml_file(folder / "dataset.toml")
print(json.dumps([listed.name, listed.version, [str(t.path) for t in listed.tasks], [t.name for t in manifest.tasks]]))
"""
    assert ask(harbor_python, script, str(dataset)) == [
        "set",
        "1.2.0",
        ["tasks/a--x", "tasks/b", "tasks/c"],
        ["org/ax", "org/bee"],
    ]


# Digests of tasks, /work/shared/formats/harbor.md 6.4: SHA-256 over `path NUL sha256 LF`, sorted by path.

PUBLISHED = ("instruction.md", "solution/solve.sh", "task.toml", "tests/test.sh")


def by_hand(folder: Path, *paths: str) -> str:
    """The digest of the files `paths` of `folder`, which are in order."""
    text = "".join(f"{path}\0{hashlib.sha256((folder / path).read_bytes()).hexdigest()}\n" for path in paths)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


DIGESTS: dict[str, tuple[Files, tuple[str, ...]]] = {
    "shortest": ({}, PUBLISHED),
    "all places": (
        {
            "README.md": "1",
            "trajectory.json": "{}",
            "environment/Dockerfile": "FROM scratch",
            "steps/one/instruction.md": "2",
            "data/other.txt": "not published",
            "LICENSE": "not published",
            "sub/README.md": "not published",
        },
        (
            "README.md",
            "environment/Dockerfile",
            "instruction.md",
            "solution/solve.sh",
            "steps/one/instruction.md",
            "task.toml",
            "tests/test.sh",
            "trajectory.json",
        ),
    ),
    "default ignores": (
        {
            "tests/__pycache__/a.py": "1",
            "tests/a.pyc": "1",
            "tests/.DS_Store": "1",
            "tests/a.swp": "1",
            "tests/a.swo": "1",
            "tests/a~": "1",
            "tests/a.py": "1",
        },
        ("instruction.md", "solution/solve.sh", "task.toml", "tests/a.py", "tests/test.sh"),
    ),
    "a .gitignore replaces the defaults": (
        {".gitignore": "*.md\n!tests/keep.md\n# no comment\n\n", "tests/a.pyc": "1", "tests/keep.md": "1"},
        ("solution/solve.sh", "task.toml", "tests/a.pyc", "tests/keep.md", "tests/test.sh"),
    ),
    "an empty .gitignore ignores nothing": (
        {".gitignore": "", "tests/__pycache__/a.pyc": "1"},
        ("instruction.md", "solution/solve.sh", "task.toml", "tests/__pycache__/a.pyc", "tests/test.sh"),
    ),
    "a .gitignore below is a file like others": (
        {"tests/.gitignore": "*.sh\n"},
        ("instruction.md", "solution/solve.sh", "task.toml", "tests/.gitignore", "tests/test.sh"),
    ),
    ".harborignore": (
        {
            "tests/.harborignore": "*.md\n!keep.md\n/only-here\nfolder/\n",
            "tests/a.md": "1",
            "tests/keep.md": "1",
            "tests/sub/a.md": "1",
            "tests/only-here": "1",
            "tests/sub/only-here": "1",
            "tests/sub/folder/x": "1",
        },
        (
            "instruction.md",
            "solution/solve.sh",
            "task.toml",
            "tests/keep.md",
            "tests/sub/only-here",
            "tests/test.sh",
        ),
    ),
    ".harborignore is heeded in tests and solution only": (
        {
            ".harborignore": "*.md\n",
            "environment/.harborignore": "*.md\n",
            "environment/a.md": "1",
            "solution/.harborignore": "*.md\n",
            "solution/a.md": "1",
        },
        ("environment/a.md", "instruction.md", "solution/solve.sh", "task.toml", "tests/test.sh"),
    ),
    "a deeper .harborignore wins": (
        {"tests/.harborignore": "*.md\n", "tests/sub/.harborignore": "!a.md\n", "tests/sub/a.md": "1"},
        ("instruction.md", "solution/solve.sh", "task.toml", "tests/sub/a.md", "tests/test.sh"),
    ),
    "nothing below an ignored folder comes back": (
        {"tests/.harborignore": "sub/\n", "tests/sub/.harborignore": "!a.md\n", "tests/sub/a.md": "1"},
        PUBLISHED,
    ),
    "sorted as text": (
        {"tests/a-b": "1", "tests/a/b": "1", "tests/a.b": "1", "tests/B": "1", "tests/é": "1"},
        (
            "instruction.md",
            "solution/solve.sh",
            "task.toml",
            "tests/B",
            "tests/a-b",
            "tests/a.b",
            "tests/a/b",
            "tests/test.sh",
            "tests/é",
        ),
    ),
    "empty folders do not count": ({"tests/empty/": "", "environment/": ""}, PUBLISHED),
}


@pytest.mark.parametrize("case", DIGESTS)
def test_digest(case: str, tmp_path: Path) -> None:
    files, published = DIGESTS[case]
    folder = make_task(tmp_path / "task", files=files)
    assert package_digest(walk(folder)) == by_hand(folder, *published)


def test_modes_do_not_count(tmp_path: Path) -> None:
    folder = make_task(tmp_path / "task")
    before = package_digest(walk(folder))
    (folder / "tests/test.sh").chmod(0o755)
    (folder / "solution").chmod(0o700)
    assert package_digest(walk(folder)) == before == by_hand(folder, *PUBLISHED)


def test_links_to_files_count_as_their_content(tmp_path: Path) -> None:
    folder = make_task(tmp_path / "task", files={"environment/data": "1"})
    (folder / "tests" / "data").symlink_to("../environment/data")
    (folder / "tests" / "none").symlink_to("missing")
    (folder / "tests" / "folder").symlink_to("../solution")
    paths = ("environment/data", "instruction.md", "solution/solve.sh", "task.toml", "tests/data", "tests/test.sh")
    assert package_digest(walk(folder)) == by_hand(folder, *paths)


CONTENT_HASH = """
import json, sys
from pathlib import Path
from harbor.publisher.packager import Packager
print(json.dumps(["sha256:" + Packager.compute_content_hash(Path(folder))[0] for folder in json.load(sys.stdin)]))
"""


def test_harbor_gives_the_same_digests(tmp_path: Path, harbor_python: Path) -> None:
    folders = [make_task(tmp_path / str(i), files=files) for i, (files, _) in enumerate(DIGESTS.values())]
    linked = make_task(tmp_path / "linked", files={"environment/data": "1", "tests/.harborignore": "*.md\n"})
    (linked / "tests" / "data").symlink_to("../environment/data")
    (linked / "tests" / "folder").symlink_to("../solution")
    folders += [linked, *(path.parent for path in sorted(FIXTURES.glob("**/task.toml")))]
    theirs = ask(harbor_python, CONTENT_HASH, [str(folder) for folder in folders])
    assert dict(zip(map(str, folders), theirs, strict=True)) == {str(f): package_digest(walk(f)) for f in folders}


def test_harbor_gives_the_same_digest_for_a_link_to_an_ignored_file(tmp_path: Path, harbor_python: Path) -> None:
    folder = make_task(tmp_path / "task", files={"tests/.harborignore": "secret\n", "tests/secret": "1"})
    (folder / "tests" / "data").symlink_to("secret")
    assert ask(harbor_python, CONTENT_HASH, [str(folder)]) == [package_digest(walk(folder))]


@pytest.mark.parametrize(
    "files",
    [
        {".gitignore": b"caf\xe9\n"},
        {".gitignore": "!\n"},
        {".gitignore/x": "a folder of that name"},
        {"tests/.harborignore": b"caf\xe9\n"},
        {"tests/.harborignore": "!\n"},
    ],
    ids=["latin-1", "no pattern", "folder", "harbor latin-1", "harbor no pattern"],
)
def test_an_ignore_file_that_cannot_be_used_costs_one_task_at_most(tmp_path: Path, files: Files) -> None:
    make_task(tmp_path / "s" / "odd", files=files)
    make_task(tmp_path / "s" / "good")
    [report] = envconvert.convert(tmp_path / "s", tmp_path / "out", to="harbor")
    assert (tmp_path / "out" / "tasks" / "good" / "task.toml").is_file()
    assert report.tasks.read == 2


# The taskset that is written need not come from Harbor.


def test_a_task_made_of_parts(tmp_path: Path) -> None:
    """As another format's reader would make it: no native files."""
    make_task(tmp_path / "s" / "made", files={"environment/Dockerfile": "FROM scratch\n"})
    [read] = envconvert.read(tmp_path / "s").container_tasks()
    task = msgspec.structs.replace(
        read,
        id="made",
        native={},
        package=None,
        prompt=(Message(role="system", content="Be brief."), Message(role="user", content="Add 2 and 2.")),
        container=msgspec.structs.replace(read.container, network=NetworkPolicy(mode="no-network")),
    )

    def tasks(ledger: Ledger) -> Iterator[ContainerTask]:
        ledger.read += 1
        yield task

    given = envconvert.read(tmp_path / "s", name="org/made")
    taskset: Taskset = msgspec.structs.replace(given, tasks=tasks, version="3", authors=(Author(name="Ann"),))
    report = envconvert.write(taskset, tmp_path / "out", format="harbor")
    assert (report.tasks.written, report.tasks.lossless) == (1, 1)
    folder = tmp_path / "out" / "tasks" / "made"
    assert (folder / "instruction.md").read_text() == "Be brief.\n\nAdd 2 and 2."
    assert tomllib.loads((folder / "task.toml").read_text())["environment"]["network_mode"] == "no-network"
    assert (folder / "environment" / "Dockerfile").read_text() == "FROM scratch\n"
    assert NAMED.splitlines()[0] not in (folder / "task.toml").read_text()
    assert tomllib.loads((tmp_path / "out/dataset.toml").read_text())["dataset"]["authors"] == [{"name": "Ann"}]
