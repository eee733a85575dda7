"""Sources on the Hub, against a stand-in on this machine (hub_stand_in.py)."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import archived, make_files, make_rows, make_task, run, snapshot
from hub_stand_in import Blob, Fault, Hub, Repository, environment, pointer, serving

NAME = "org/name"
TOKEN = "hf_" + "t0ken" * 7


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """One dataset, org/name: on `main` two tasks below tasks/, with a registry; at the tag `v1` only the first."""
    main, v1 = tmp_path / "main", tmp_path / "v1"
    make_task(main / "tasks" / "one", files={"environment/data.bin": bytes(range(256))})
    make_task(main / "tasks" / "two")
    make_files(
        main, {"README.md": "---\ntags: [rl-environment, harbor]\n---\n", "registry.json": "[]", "big.bin": "0" * 9}
    )
    make_task(v1 / "tasks" / "one", files={"instruction.md": "As it was.\n"})
    with serving(tmp_path / "hub") as server:
        made = server.add(NAME)
        made.names["v1"] = made.fill(v1)
        made.fill(main)
        server.asked.clear()
        yield server


def inspected(source: str, hub: Hub, tmp_path: Path, *options: str) -> Any:
    done = run("inspect", source, "--json", *options, env=environment(hub.address, tmp_path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def fetched(hub: Hub) -> list[str]:
    """Paths in the dataset of the files whose contents were asked for, each once, in order."""
    paths = [found.path.partition("/resolve/")[2].partition("/")[2] for found in hub.asked]
    return list(dict.fromkeys(path for path in paths if path))


def test_a_path_at_a_revision(hub: Hub, tmp_path: Path) -> None:
    found = inspected(f"hf://datasets/{NAME}@main/tasks", hub, tmp_path)
    assert (found["format"], found["tasks"], found["containers"]["image"]) == ("harbor", 2, 2)
    asked = [request.path for request in hub.asked if "/resolve/" in request.path]
    assert asked
    below = f"/resolve/{hub.repositories[NAME].head}/tasks/"
    assert all(below in path for path in asked), "only what is below the path, at one commit"


@pytest.mark.parametrize("source", [f"hf://datasets/{NAME}", NAME])
def test_a_whole_repository(source: str, hub: Hub, tmp_path: Path) -> None:
    found = inspected(source, hub, tmp_path)
    assert (found["tasks"], found["name"]) == (2, "local/name")


def test_another_revision(hub: Hub, tmp_path: Path) -> None:
    assert inspected(f"hf://datasets/{NAME}@v1", hub, tmp_path)["tasks"] == 1
    assert inspected(f"hf://datasets/{NAME}@{hub.repositories[NAME].names['v1']}", hub, tmp_path)["tasks"] == 1
    assert inspected(f"hf://datasets/{NAME}", hub, tmp_path)["tasks"] == 2


def test_the_report_says_where_it_came_from(hub: Hub, tmp_path: Path) -> None:
    env = environment(hub.address, tmp_path)
    done = run("convert", f"hf://datasets/{NAME}@v1", tmp_path / "out", "--to", "harbor", "--json", env=env)
    assert done.returncode == 0, done.stderr
    source = json.loads(done.stdout)["source"]
    older = hub.repositories[NAME].names["v1"]
    assert (source["format"], source["uri"], source["revision"]) == ("harbor", f"hf://datasets/{NAME}@v1", older)
    assert str(tmp_path) not in done.stdout


def converted(hub: Hub, tmp_path: Path, *options: str, source: str = NAME, token: str = "") -> Path:
    """What a conversion to Harbor writes of `source`."""
    target = tmp_path / f"out-{len(hub.asked)}"
    env = environment(hub.address, tmp_path, token)
    done = run("convert", source, target, "--to", "harbor", *options, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return target


def test_what_is_fetched_is_what_is_there(hub: Hub, tmp_path: Path) -> None:
    """Real files, not links into a cache; nothing of what the client notes beside them."""
    out = converted(hub, tmp_path)
    assert snapshot(out / "tasks") == snapshot(tmp_path / "main" / "tasks")


def test_a_repository_that_is_one_task(hub: Hub, tmp_path: Path) -> None:
    make_task(tmp_path / "task", files={"environment/data.bin": bytes(range(256))})
    hub.add("org/single").fill(tmp_path / "task")
    out = converted(hub, tmp_path, source="org/single")
    kept = snapshot(out / "tasks" / "single")
    assert kept.pop(b".gitattributes")
    assert kept == snapshot(tmp_path / "task")


def test_one_task(hub: Hub, tmp_path: Path) -> None:
    env = environment(hub.address, tmp_path)
    done = run("inspect", f"hf://datasets/{NAME}/tasks/two", "--list", env=env)
    assert (done.returncode, done.stdout) == (0, "two\n")


def test_packed_tasks(hub: Hub, tmp_path: Path) -> None:
    """The other style of the Hub: tasks packed in the Parquet files of its viewer."""
    make_rows(tmp_path / "rows" / "data" / "train-00000-of-00001.parquet", {"one": archived(), "group/two": archived()})
    hub.add("org/packed").fill(tmp_path / "rows")
    found = inspected("hf://datasets/org/packed", hub, tmp_path)
    assert (found["format"], found["tasks"], found["sets"]) == ("harbor", 2, {"train": 2})
    one_file = "hf://datasets/org/packed/data/train-00000-of-00001.parquet"
    assert inspected(one_file, hub, tmp_path)["tasks"] == 2


@pytest.mark.parametrize("place", ["", "/registry.json"])
def test_a_dataset_of_the_registry(place: str, hub: Hub, tmp_path: Path) -> None:
    entry = {"name": "mini", "version": "1", "description": "", "tasks": [{"name": "two", "path": "tasks/two"}]}
    make_files(tmp_path / "main", {"registry.json": json.dumps([entry])})
    hub.repositories[NAME].fill(tmp_path / "main")
    env = environment(hub.address, tmp_path)
    source = f"hf://datasets/{NAME}{place}"
    assert run("inspect", source, "--dataset", "mini", "--list", env=env, cwd=tmp_path).stdout == "two\n"


def test_a_folder_of_that_name_comes_first(hub: Hub, tmp_path: Path) -> None:
    make_task(tmp_path / "org" / "name" / "local")
    env = environment(hub.address, tmp_path)
    assert run("inspect", NAME, "--list", env=env, cwd=tmp_path).stdout == "local\n"
    assert hub.asked == []


# Only what is needed.


def test_ids_take_no_file_of_a_task(hub: Hub, tmp_path: Path) -> None:
    env = environment(hub.address, tmp_path)
    assert run("inspect", NAME, "--list", env=env, cwd=tmp_path).stdout == "one\ntwo\n"
    assert set(fetched(hub)) == {"README.md", "registry.json", ".gitattributes"}


def test_inspect_fetches_what_describes_a_task(hub: Hub, tmp_path: Path) -> None:
    found = inspected(NAME, hub, tmp_path)
    assert (found["tasks"], found["losses"]) == (2, [])
    names = ("instruction.md", "solution/solve.sh", "task.toml", "tests/test.sh")
    wanted = {f"tasks/{task}/{name}" for task in ("one", "two") for name in names}
    assert set(fetched(hub)) - {"README.md", "registry.json", ".gitattributes"} == wanted
    hub.asked.clear()
    assert inspected(NAME, hub, tmp_path) == found
    assert fetched(hub) == [], "what is there is not fetched again"
    out = converted(hub, tmp_path)
    assert snapshot(out / "tasks") == snapshot(tmp_path / "main" / "tasks"), "no empty file is taken for a real one"
    assert fetched(hub) == ["tasks/one/environment/data.bin"]


@pytest.mark.parametrize(("options", "task"), [(("--tasks", "t*"), "two"), (("--limit", "1"), "one")])
def test_only_the_tasks_that_are_wanted(options: tuple[str, ...], task: str, hub: Hub, tmp_path: Path) -> None:
    out = converted(hub, tmp_path, *options)
    assert snapshot(out / "tasks") == {
        path: content
        for path, content in snapshot(tmp_path / "main" / "tasks").items()
        if path.startswith(task.encode())
    }
    assert {path.split("/")[1] for path in fetched(hub) if path.startswith("tasks/")} == {task}
    assert "big.bin" not in fetched(hub), "what LFS has beside the tasks is in no format"


def test_the_first_task_is_that_of_all_and_not_of_those_that_were_fetched(hub: Hub, tmp_path: Path) -> None:
    converted(hub, tmp_path, "--tasks", "two")
    out = converted(hub, tmp_path, "--limit", "1")
    assert [place.name for place in (out / "tasks").iterdir()] == ["one"]


def test_a_tree_of_several_pages(hub: Hub, tmp_path: Path) -> None:
    """The Hub lists 1,000 entries at a time."""
    files = {f"environment/{number:04}.txt": "" for number in range(1100)}
    make_task(tmp_path / "main" / "tasks" / "many", files=files)
    hub.repositories[NAME].fill(tmp_path / "main")
    env = environment(hub.address, tmp_path)
    assert run("inspect", NAME, "--list", env=env, cwd=tmp_path).stdout == "many\none\ntwo\n"
    assert sum("/tree/" in request.path for request in hub.asked) == 2
    assert inspected(NAME, hub, tmp_path, "--tasks", "two")["tasks"] == 1


# What goes wrong.


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("hf://datasets/org/unknown", "hf://datasets/org/unknown"),
        ("org/unknown", "org/unknown"),
        (f"hf://datasets/{NAME}@v9", "no revision 'v9'"),
        (f"hf://datasets/{NAME}/nothing/here", "'nothing/here'"),
        (f"hf://datasets/{NAME}/README.md", "of no known format"),
    ],
)
def test_what_is_not_there_is_4(source: str, says: str, hub: Hub, tmp_path: Path) -> None:
    assert says in refused(source, hub, tmp_path)


def refused(source: str, hub: Hub, tmp_path: Path, token: str = "") -> str:
    """The one line that says why `source` is not read."""
    env = environment(hub.address, tmp_path, token)
    done = run("convert", source, tmp_path / "none", "--to", "harbor", env=env, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (4, "")
    assert not (tmp_path / "none").exists()
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert str(tmp_path) not in done.stderr
    assert TOKEN not in done.stderr
    return done.stderr


@pytest.fixture
def closed(hub: Hub, tmp_path: Path) -> Repository:
    """org/closed, with one task; TOKEN is of somebody who has nothing to do with it."""
    made = hub.add("org/closed")
    make_task(tmp_path / "closed" / "tasks" / "one")
    made.fill(tmp_path / "closed")
    hub.user(TOKEN, "somebody")
    return made


def test_who_is_kept_out_is_told_what_to_do(closed: Repository, hub: Hub, tmp_path: Path) -> None:
    """The Hub does not tell a stranger whether a private dataset is there, so that no message can."""
    closed.gated = True
    gated = f"the dataset is gated: ask for access at {hub.address}/datasets/org/closed"
    assert f"{gated}, and sign in with `hf auth login`, or set HF_TOKEN" in refused("org/closed", hub, tmp_path)
    assert refused("org/closed", hub, tmp_path, TOKEN).rstrip().endswith(gated)
    closed.gated, closed.private = False, True
    for source in ("org/closed", "org/unknown"):
        private = "no such dataset, or a private one; if it is private, sign in with `hf auth login`, or set HF_TOKEN"
        assert private in refused(source, hub, tmp_path)
        assert "the account of the token used may not read" in refused(source, hub, tmp_path, TOKEN)
    assert "the Hub does not know the token" in refused("org/closed", hub, tmp_path, "hf_" + "wrong" * 8)


def test_who_is_let_in_reads(closed: Repository, hub: Hub, tmp_path: Path) -> None:
    closed.gated, closed.private = True, True
    closed.readers.add("somebody")
    make_files(tmp_path / "closed", {"tasks/one/environment/data.bin": bytes(300)})
    closed.fill(tmp_path / "closed")
    out = converted(hub, tmp_path, source="org/closed", token=TOKEN)
    assert snapshot(out / "tasks") == snapshot(tmp_path / "closed" / "tasks")
    stored = [request for request in hub.asked if request.path.startswith("/lfs/")]
    assert stored
    assert not any(request.authorized for request in stored), "the token stays at the Hub"


def test_a_token_of_a_file(closed: Repository, hub: Hub, tmp_path: Path) -> None:
    """As `hf auth login` leaves it."""
    closed.private = True
    closed.readers.add("somebody")
    make_files(tmp_path / "hf", {"token": TOKEN})
    converted(hub, tmp_path, source="org/closed")


def test_a_token_that_is_no_header_is_not_printed(closed: Repository, hub: Hub, tmp_path: Path) -> None:
    refused("org/closed", hub, tmp_path, f"{TOKEN}\x01\x02")


def test_a_hub_that_does_not_answer_is_4(tmp_path: Path) -> None:
    """Port 1 of this machine: nobody listens there."""
    done = run("inspect", NAME, "--json", env=environment("http://127.0.0.1:1", tmp_path), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (4, "")
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_a_path_does_not_leave_the_dataset(hub: Hub, tmp_path: Path) -> None:
    make_task(tmp_path / "cache" / "hub" / "private")
    env = environment(hub.address, tmp_path)
    done = run("inspect", f"hf://datasets/{NAME}/../../private", "--list", env=env, cwd=tmp_path)
    assert done.returncode in (2, 4)
    assert done.stdout == ""


LARGE = "tasks/one/environment/large.bin"


@pytest.mark.parametrize(
    "fault",
    [
        Fault("GET /api/datasets/org/name$", "status", 429, {"Retry-After": "1"}),
        Fault("GET /api/datasets/org/name$", "status", 503),
        Fault("GET .*/tree/", "cut"),
        Fault("GET .*/tree/", "status", 429, {"Retry-After": "0"}),
        Fault("HEAD .*task.toml", "status", 503),
        Fault("GET .*task.toml", "status", 503),
        Fault("GET .*task.toml", "cut", after=10),
        Fault("GET /lfs/", "cut", after=100_000),
        Fault("GET /lfs/", "status", 503, times=2),
    ],
    ids=lambda fault: f"{fault.act} {fault.status} {fault.at}",
)
def test_what_passes_does_not_matter(fault: Fault, hub: Hub, tmp_path: Path) -> None:
    make_files(tmp_path / "main", {LARGE: bytes(range(256)) * 4000})
    hub.repositories[NAME].fill(tmp_path / "main")
    hub.faults.append(fault)
    out = converted(hub, tmp_path)
    assert fault.times == 0
    assert snapshot(out / "tasks") == snapshot(tmp_path / "main" / "tasks")


def test_a_download_that_was_broken_off_goes_on(hub: Hub, tmp_path: Path) -> None:
    """The process is killed amid the files: those that were there are not fetched again, and all are whole."""
    make_files(tmp_path / "main", {f"tasks/two/environment/{number}.txt": str(number) for number in range(30)})
    hub.repositories[NAME].fill(tmp_path / "main")
    env = environment(hub.address, tmp_path)
    hub.faults.append(Fault("GET .*/resolve/.*/tasks/", "kill", skip=25))
    with subprocess.Popen(
        [sys.executable, "-m", "envconvert", "convert", NAME, tmp_path / "none", "--to", "harbor"],
        env={**os.environ, **env},
        cwd=tmp_path,
    ) as process:
        hub.victim = process.pid
    assert process.returncode == -signal.SIGKILL
    files = next((tmp_path / "cache").rglob("files/name"))
    there = {path.relative_to(files).as_posix() for path in files.rglob("*") if path.is_file()}
    assert len(there) > 10
    hub.asked.clear()
    out = converted(hub, tmp_path)
    assert snapshot(out / "tasks") == snapshot(tmp_path / "main" / "tasks")
    assert there.isdisjoint(fetched(hub))


# Git LFS pointers.


def test_a_clone_without_lfs(hub: Hub, tmp_path: Path) -> None:
    """What git alone makes of the dataset: the task whose file is a pointer is refused, the other is not."""
    subprocess.run(["git", "clone", "--quiet", hub.repositories[NAME].place, tmp_path / "clone"], check=True)
    done = run("convert", tmp_path / "clone", tmp_path / "out", "--to", "harbor", "--json")
    assert done.returncode == 3, done.stderr
    [loss] = json.loads(done.stdout)["losses"]
    assert (loss["code"], loss["task"], loss["field"]) == ("lfs-pointer", "one", "environment/data.bin")
    assert "git lfs pull" in loss["hint"]
    assert [place.name for place in (tmp_path / "out" / "tasks").iterdir()] == ["two"]


def test_a_pointer_that_git_does_not_know_of_is_a_file(tmp_path: Path) -> None:
    """A task about LFS may hold one."""
    make_task(tmp_path / "src" / "one", files={"environment/data.bin": pointer("0" * 64, 1)})
    done = run("convert", tmp_path / "src", tmp_path / "out", "--to", "harbor")
    assert done.returncode == 0, done.stderr


def test_rows_of_a_clone_without_lfs(hub: Hub, tmp_path: Path) -> None:
    make_rows(tmp_path / "rows" / "data" / "train-00000-of-00001.parquet", {"one": archived()})
    made = hub.add("org/packed")
    made.fill(tmp_path / "rows")
    subprocess.run(["git", "clone", "--quiet", made.place, tmp_path / "clone"], check=True)
    done = run("inspect", tmp_path / "clone")
    assert (done.returncode, done.stdout) == (4, "")
    assert "train-00000-of-00001.parquet: it is a Git LFS pointer" in done.stderr
    assert "git lfs pull" in done.stderr


def test_a_dataset_that_stores_pointers(hub: Hub, tmp_path: Path) -> None:
    """Somebody uploaded a clone without LFS: the Hub itself has pointers only."""
    hub.repositories[NAME].commit({"tasks/one/environment/data.bin": Blob(pointer("0" * 64, 1))}, "From a clone")
    env = environment(hub.address, tmp_path)
    done = run("convert", NAME, tmp_path / "out", "--to", "harbor", "--json", env=env, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    [loss] = json.loads(done.stdout)["losses"]
    assert (loss["code"], loss["task"], loss["field"]) == ("lfs-pointer", "one", "environment/data.bin")
