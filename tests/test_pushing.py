"""Pushing to the Hub, against a stand-in on this machine (hub_stand_in.py)."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import make_files, make_task, run, snapshot
from hub_stand_in import Blob, Fault, Hub, Repository, environment, serving

import envconvert
from envconvert.formats.losses import Severity
from envconvert.pushing import push_losses

NAME = "org/set"
TOKEN = "hf_" + "t0ken" * 7
BINARY = bytes(range(256)) * 1000

DRIVER = """
import sys
from envconvert import pushing
from envconvert.report import to_json
folder, name, pushing.FILES = sys.argv[1], sys.argv[2], int(sys.argv[3])
try:
    print(to_json(pushing.push(folder, name, say=lambda line: print(line, file=sys.stderr))))
except pushing.PushError as error:
    print(error, file=sys.stderr)
    sys.exit(4)
"""
"""Push a folder, so many files a commit."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two tasks, with all that the Hub holds otherwise, or not."""
    source = tmp_path / "src"
    make_task(source / "one", files={"environment/data.bin": BINARY, "environment/empty/": "", "tests/zero": ""})
    make_task(source / "two", files={"tests/run": "#!/bin/sh\nexit 0\n", "tests/data/rows.csv": "a,b\n"})
    for script in ("one/tests/test.sh", "two/tests/test.sh", "two/solution/solve.sh", "two/tests/run"):
        (source / script).chmod(0o755)
    (source / "two" / "tests" / "link.csv").symlink_to("data/rows.csv")
    return source


def published(source: Path, target: Path) -> Path:
    formats = ["harbor", "verifiers"]
    envconvert.publish(source, target, to=formats, claim=formats, name=NAME, say=lambda line: None)
    return target


@pytest.fixture
def folder(source: Path, tmp_path: Path) -> Path:
    return published(source, tmp_path / "published")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """Without a dataset; who brings TOKEN writes to `org`."""
    with serving(tmp_path / "hub") as server:
        server.user(TOKEN, "somebody", "org")
        yield server


def start(folder: Path, hub: Hub, name: str, files: int, token: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, folder, name, str(files)],
        env={**os.environ, **environment(hub.address, hub.place.parent, token)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def push(folder: Path, hub: Hub, *, name: str = NAME, files: int = 500) -> dict[str, Any]:
    """What a push says that it did."""
    process = start(folder, hub, name, files, TOKEN)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert TOKEN not in out + err
    done: dict[str, Any] = json.loads(out)
    return done


def refused(folder: Path, hub: Hub, *, name: str = NAME, token: str = TOKEN) -> str:
    """Why a push is not done."""
    process = start(folder, hub, name, 500, token)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (4, ""), err
    assert TOKEN not in err
    return err.splitlines()[-1]


def local(folder: Path) -> dict[str, bytes]:
    """The files of a folder, links followed."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def check(folder: Path, hub: Hub, *, others: dict[str, bytes] | None = None) -> Repository:
    """The dataset has the files of `folder` and `others`, nothing else, and nothing came twice."""
    made = hub.repositories[NAME]
    there = made.contents()
    del there[".gitattributes"]
    pushed = json.loads(there.pop("envconvert.pushed.json"))
    registry = json.loads(there.pop("registry.json"))
    here = local(folder)
    wanted = json.loads(here.pop("registry.json"))
    assert there == {**here, **(others or {})}
    assert pushed["files"] == sorted([*here, "registry.json"])
    commits = {entry.pop("git_commit_id") for dataset in registry for entry in dataset["tasks"]}
    assert {entry.pop("git_url") for dataset in registry for entry in dataset["tasks"]} == {
        f"{hub.address}/datasets/{NAME}"
    }
    assert registry == wanted
    [commit] = commits
    tasks = {path: content for path, content in here.items() if path.startswith("tasks/")}
    assert tasks.items() <= made.contents(commit).items()
    assert len(made.uploads) == len(set(made.uploads)), "no content of LFS is uploaded twice"
    versions = [dict(found.files) for found in made.commits.values()]
    assert all(before != after for before, after in pairwise(versions)), "no commit is empty"
    return made


# What is pushed.


def test_a_first_push(folder: Path, hub: Hub) -> None:
    done = push(folder, hub)
    made = check(folder, hub)
    assert made.private
    files, pinned = list(made.commits)[1:]
    assert (done["pinned"], done["revision"], done["created"]) == (files, pinned, True)
    assert made.history == ["initial commit", "Publish with envconvert, 1 of 1", f"Pin registry.json to {files[:12]}"]
    assert "registry.json" not in made.contents(files), "nobody finds a registry before what it lists"
    assert (done["repository"], done["deleted"], done["unchanged"]) == (f"{hub.address}/datasets/{NAME}", 0, 1)
    assert done["written"] == len(local(folder)) - 1, "all but registry.json"
    assert made.files["tasks/one/environment/data.bin"].is_lfs
    assert not made.files["tasks/one/task.toml"].is_lfs


def test_a_second_push_does_nothing(folder: Path, hub: Hub) -> None:
    first = push(folder, hub)
    hub.asked.clear()
    second = push(folder, hub)
    assert not [request for request in hub.asked if request.method in ("POST", "PUT")]
    assert (second["revision"], second["pinned"]) == (first["revision"], first["pinned"])
    assert (second["created"], second["written"], second["deleted"]) == (False, 0, 0)
    check(folder, hub)


def test_commits_of_a_size_that_the_hub_takes(folder: Path, hub: Hub) -> None:
    push(folder, hub, files=10)
    made = check(folder, hub)
    commits = list(made.commits.values())
    for before, after in pairwise(commits):
        assert 1 <= len(after.files.items() - before.files.items()) <= 10
    assert len(commits) > 3
    with_card = [number for number, commit in enumerate(commits) if "README.md" in commit.files]
    assert with_card[0] == len(commits) - 2, "a half of it is not shown as if it were whole"


def test_a_large_file_in_parts(folder: Path, hub: Hub) -> None:
    hub.multipart = 100_000
    push(folder, hub)
    check(folder, hub)
    assert len(hub.parts) == 3


def test_a_dataset_that_is_there_keeps_its_visibility(folder: Path, hub: Hub) -> None:
    hub.add(NAME, private=False)
    assert push(folder, hub)["created"] is False
    assert not check(folder, hub).private


def test_an_update_deletes_what_it_wrote_and_nothing_else(source: Path, folder: Path, hub: Hub) -> None:
    push(folder, hub)
    made = hub.repositories[NAME]
    owners = {"tasks/two/notes.md": b"Mine.\n", "tasks/three/task.toml": b"", "paper.pdf": b"%PDF"}
    made.commit({path: Blob(content) for path, content in owners.items()}, "By hand")
    shutil.rmtree(source / "two")
    make_task(source / "one", files={"instruction.md": "Another.\n"})
    make_task(source / "zero")
    published(source, folder)
    done = push(folder, hub)
    check(folder, hub, others=owners)
    gone = ["instruction.md", "solution/solve.sh", "task.toml", "tests/test.sh", "tests/run", "tests/data/rows.csv"]
    assert done["deleted"] == len([*gone, "tests/link.csv"])
    assert made.commits[done["pinned"]].files.keys().isdisjoint(f"tasks/two/{path}" for path in gone)


def test_what_a_broken_push_wrote_is_not_forgotten(source: Path, folder: Path, hub: Hub) -> None:
    """It is killed amid the files of a task that is then dropped: these are deleted, though no push came to its end."""
    push(folder, hub)
    make_task(source / "dropped", files={f"tests/{number}": str(number) for number in range(30)})
    published(source, folder)
    hub.faults.append(Fault("POST .*/commit/", "kill", skip=2))
    killed(folder, hub, files=10)
    assert any(path.startswith("tasks/dropped/") for path in hub.repositories[NAME].files)
    shutil.rmtree(source / "dropped")
    published(source, folder)
    push(folder, hub)
    check(folder, hub)


def test_a_clone_is_pushed(source: Path, folder: Path, hub: Hub, tmp_path: Path) -> None:
    """Who publishes into a clone of the dataset; what git and huggingface_hub note there stays there."""
    push(folder, hub)
    clone = hub.repositories[NAME].clone(tmp_path / "clone")
    make_files(clone, {".cache/huggingface/notes": "", "paper.pdf": "%PDF"})
    make_task(source / "zero")
    published(source, clone)
    assert push(clone, hub)["deleted"] == 0
    made = hub.repositories[NAME]
    commit = made.commits[made.head].files
    assert {"tasks/zero/task.toml", "paper.pdf"} <= commit.keys()
    assert not [path for path in commit if path.startswith((".git/", ".cache/"))]
    hub.asked.clear()
    assert push(clone, hub)["written"] == 0


def test_another_file_is_not_replaced(folder: Path, hub: Hub) -> None:
    made = hub.add(NAME)
    made.commit({"tasks/one/task.toml": Blob(b"mine"), "README.md": Blob(b"# A card\n")}, "By hand")
    assert "tasks/one/task.toml: 1 files there are in the way" in refused(folder, hub)
    assert made.history == ["initial commit", "By hand"]


def test_a_dataset_that_was_pushed_by_git_is_updated(source: Path, folder: Path, hub: Hub) -> None:
    hub.add(NAME).fill(folder)
    make_task(source / "one", files={"instruction.md": "Another.\n"})
    published(source, folder)
    push(folder, hub)
    check(folder, hub)


def test_a_pin_that_is_gone_is_set_anew(folder: Path, hub: Hub) -> None:
    """The owner has squashed the history."""
    push(folder, hub)
    made = hub.repositories[NAME]
    for commit in list(made.commits):
        if commit != made.head:
            del made.commits[commit]
    assert push(folder, hub)["pinned"] in made.commits
    check(folder, hub)


def test_a_pin_to_other_tasks_is_set_anew(folder: Path, hub: Hub) -> None:
    """What the owner changed by hand is as it was again, but the registry names another commit of it."""
    first = push(folder, hub)
    made = hub.repositories[NAME]
    toml = made.files["tasks/one/task.toml"]
    changed = made.commit({"tasks/one/task.toml": Blob(b"")}, "By hand")
    text = made.contents()["registry.json"].decode().replace(first["pinned"], changed)
    made.commit({"tasks/one/task.toml": toml, "registry.json": Blob(text.encode())}, "By hand, again")
    assert push(folder, hub)["pinned"] not in (first["pinned"], changed)
    check(folder, hub)


# What goes wrong on the way.


@pytest.mark.parametrize(
    "fault",
    [
        Fault("GET /api/datasets/org/set", "status", 429, {"Retry-After": "1"}),
        Fault("POST /api/repos/create", "status", 503),
        Fault("POST /api/repos/create", "lose"),
        Fault("POST /api/validate-yaml", "status", 503),
        Fault("POST .*/preupload/", "status", 429, {"Retry-After": "1"}),
        Fault("POST .*/preupload/", "cut"),
        Fault("POST .*/objects/batch", "status", 503),
        Fault("PUT /lfs/", "status", 503),
        Fault("PUT /lfs/", "cut", after=100_000),
        Fault("PUT /lfs/", "lose"),
        Fault("POST .*/lfs/verify", "cut"),
        Fault("POST .*/commit/", "status", 429, {"Retry-After": "2"}),
        Fault("POST .*/commit/", "status", 503, times=2),
        Fault("POST .*/commit/", "status", 412),
        Fault("POST .*/commit/", "cut", after=1000),
        Fault("POST .*/commit/", "lose"),
        Fault("POST .*/commit/", "lose", skip=1),
        Fault("POST .*/commit/", "lose", skip=3),
        Fault("GET .*/tree/", "cut", skip=1, after=100),
    ],
    ids=lambda fault: f"{fault.act} {fault.status} {fault.at} {fault.skip}",
)
def test_what_passes_does_not_matter(fault: Fault, folder: Path, hub: Hub) -> None:
    hub.faults.append(fault)
    push(folder, hub, files=15)
    assert fault.times == 0
    if fault.act == "lose" and fault.at.startswith("PUT"):
        hub.repositories[NAME].uploads.pop()  # the Hub's client, which does not know, sends it again
    made = check(folder, hub)
    whole = len(local(folder))  # with the list of what was pushed, and without registry.json
    assert len(made.history) == 1 + -(-whole // 15) + 1, "no commit is made twice"


def test_a_pause_that_the_hub_asks_for_in_words(folder: Path, hub: Hub) -> None:
    """Its limit of commits an hour. More than two hours are not waited for."""
    words = (
        "You have exceeded the rate limit for repository commits (128 per hour). You can retry this action in 3 hours."
    )
    hub.faults.append(Fault("POST .*/commit/", "status", 429, {"X-Error-Message": words}))
    assert "retry this action in 3 hours" in refused(folder, hub)


def killed(folder: Path, hub: Hub, *, files: int = 500) -> None:
    """Push, and be killed where a fault of `hub` says."""
    process = start(folder, hub, NAME, files, TOKEN)
    hub.victim = process.pid
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL


def test_a_killed_push_goes_on(folder: Path, tmp_path: Path) -> None:
    """Killed after each request that sends something, in turn: the next push ends with the same, and nothing twice."""
    commits = 1 + -(-len(local(folder)) // 25) + 1
    number = 0
    while True:
        with serving(tmp_path / f"hub-{number}") as hub:
            hub.user(TOKEN, "somebody", "org")
            fault = Fault("(POST|PUT) ", "lose and kill", skip=number)
            hub.faults.append(fault)
            process = start(folder, hub, NAME, 25, TOKEN)
            hub.victim = process.pid
            _, err = process.communicate(timeout=120)
            if process.returncode == 0:
                assert (fault.times, fault.skip) == (1, 0), "this push had one such request less"
                whole = check(folder, hub)
                break
            assert process.returncode == -signal.SIGKILL, err
            push(folder, hub, files=25)
            made = check(folder, hub)
            assert len(made.history) <= commits
        number += 1
    assert number >= 10
    assert len(whole.history) == commits


# What cannot be pushed.


def test_who_may_not_push_is_told_what_to_do(folder: Path, hub: Hub) -> None:
    assert "to push, sign in with `hf auth login`, or set HF_TOKEN" in refused(folder, hub, token="")
    assert hub.asked == []
    assert "the Hub does not know the token" in refused(folder, hub, token="hf_" + "wrong" * 8)
    assert "may not do this" in refused(folder, hub, name="elsewhere/set")
    hub.add("elsewhere/public")
    assert "may not do this" in refused(folder, hub, name="elsewhere/public")
    assert "ORG/NAME" in refused(folder, hub, name="set")


def test_a_folder_that_publish_did_not_write(source: Path, hub: Hub) -> None:
    assert "publish did not write it" in refused(source, hub)


@pytest.mark.parametrize(
    ("name", "shown"),
    [(".git/HEAD", ".git"), (".cache/data", ".cache"), ("line\nend", "line\\nend"), ("caf\udce9", "caf\\xe9")],
)
def test_a_name_that_the_hub_does_not_take(name: str, shown: str, folder: Path, hub: Hub) -> None:
    make_files(folder, {f"tasks/one/environment/{name}": "content"})
    assert f"tasks/one/environment/{shown}: the Hub takes" in refused(folder, hub)
    assert hub.asked == []


def test_more_entries_than_the_hub_takes(folder: Path, hub: Hub) -> None:
    make_files(folder, {f"tasks/one/environment/{number}": "" for number in range(10_001)})
    assert "it has 10003 entries, and the Hub takes 10000" in refused(folder, hub)
    assert hub.asked == []


def test_what_the_hub_leaves_out_is_said(folder: Path, hub: Hub) -> None:
    """Its client skips what a .gitignore in the dataset names, without a word."""
    hub.add(NAME).commit({".gitignore": Blob(b"*.csv\n")}, "By hand")
    assert "did not keep tasks/two/tests/data/rows.csv" in refused(folder, hub)


def test_what_the_hub_does_not_hold(folder: Path) -> None:
    found = {(loss.code, loss.severity, loss.task, loss.field) for loss in push_losses(folder)}
    assert found == {
        ("hub-script", Severity.NOTE, "one", "tests/test.sh"),
        ("hub-script", Severity.NOTE, "two", "tests/test.sh"),
        ("hub-script", Severity.NOTE, "two", "solution/solve.sh"),
        ("hub-mode", Severity.DEGRADED, "two", "tests/run"),
        ("hub-folder", Severity.DEGRADED, "one", "environment/empty"),
        ("hub-link", Severity.DEGRADED, "two", "tests/link.csv"),
    }


# And back.


def test_what_comes_back(source: Path, folder: Path, hub: Hub, tmp_path: Path) -> None:
    """The same files, modes and empty folders; a link is a copy."""
    push(folder, hub)
    env = environment(hub.address, tmp_path, TOKEN)
    done = run("convert", NAME, tmp_path / "out", "--to", "harbor", "--name", NAME, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    link = source / "two" / "tests" / "link.csv"
    link.unlink()
    shutil.copyfile(source / "two" / "tests" / "data" / "rows.csv", link)
    assert snapshot(tmp_path / "out" / "tasks") == snapshot(source)
    one = run("inspect", NAME, "--dataset", "set", "--tasks", "one", "--list", env=env, cwd=tmp_path)
    assert (one.returncode, one.stdout) == (0, "one\n"), "its own registry is not that of another repository"


def test_one_task_comes_back(source: Path, folder: Path, hub: Hub, tmp_path: Path) -> None:
    push(folder, hub)
    env = environment(hub.address, tmp_path, TOKEN)
    address = f"hf://datasets/{NAME}/tasks/one"
    done = run("convert", address, tmp_path / "out", "--to", "harbor", env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert snapshot(tmp_path / "out" / "tasks" / "one") == snapshot(source / "one")


def test_the_command(source: Path, hub: Hub, tmp_path: Path) -> None:
    env = environment(hub.address, tmp_path, TOKEN)
    options = ("--to", "harbor,verifiers", "--claim", "harbor,verifiers", "--push", NAME)
    done = run("publish", source, tmp_path / "out", *options, "--json", env=env)
    assert done.returncode == 0, done.stderr
    check(tmp_path / "out", hub)
    said = json.loads(done.stdout)
    assert said["pushed"]["revision"] == hub.repositories[NAME].head
    assert TOKEN not in done.stdout + done.stderr
    env = environment(hub.address, tmp_path)
    done = run("publish", source, tmp_path / "out", *options, env=env)
    assert done.returncode == 4
    assert "set HF_TOKEN" in done.stderr


def test_a_registry_that_is_pinned_to_other_tasks_stays_so(folder: Path, hub: Hub, tmp_path: Path) -> None:
    push(folder, hub)
    hub.repositories[NAME].commit({"tasks/one/instruction.md": Blob(b"By hand.\n")}, "By hand")
    env = environment(hub.address, tmp_path, TOKEN)
    done = run("inspect", NAME, "--dataset", "set", "--json", env=env, cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    assert {loss["code"] for loss in json.loads(done.stdout)["losses"]} >= {"registry-remote"}


def test_a_clone_has_what_the_registry_names(folder: Path, hub: Hub, tmp_path: Path) -> None:
    """By git's own protocol, from the address that registry.json gives, at the commit that it gives."""
    hub.add(NAME)
    done = push(folder, hub)
    [dataset] = json.loads(hub.repositories[NAME].contents()["registry.json"])
    entry = dataset["tasks"][0]
    env = {**os.environ, **environment(hub.address, tmp_path)}
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", entry["git_url"], clone], check=True, env=env)
    subprocess.run(["git", "checkout", "--quiet", entry["git_commit_id"]], check=True, cwd=clone)
    assert entry["git_commit_id"] == done["pinned"]
    kept = {path: content for path, content in local(clone).items() if not path.startswith(".git")}
    here = local(folder)
    for path in ("registry.json", "tasks/one/environment/data.bin"):  # the one comes later, the other is in LFS
        kept.pop(path, None)
        here.pop(path)
    parquet = [path for path in here if path.endswith(".parquet")]
    assert all(kept.pop(path).startswith(b"version https://git-lfs") for path in parquet)
    assert kept.keys() - here.keys() == {"envconvert.pushed.json"}
    assert {path: kept[path] for path in here.keys() - set(parquet)} == {
        path: content for path, content in here.items() if path not in parquet
    }


@pytest.mark.docker
@pytest.mark.frameworks
def test_harbor_runs_what_was_pushed(folder: Path, hub: Hub, tmp_path: Path, harbor_python: Path, docker: str) -> None:
    """With the command of the card: Harbor takes the registry from the address, and each task at its commit."""
    hub.add(NAME)
    push(folder, hub)
    address = f"{hub.address}/datasets/{NAME}"
    harbor = str(harbor_python.with_name("harbor"))
    options = ["--agent", "oracle", "--jobs-dir", str(tmp_path / "jobs")]
    subprocess.run(
        [harbor, "run", "--repo", address, "--dataset", "set@head", *options],
        env={**os.environ, **environment(hub.address, tmp_path), "HARBOR_TELEMETRY": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=300,
    )
    rewards = [path.read_text() for path in (tmp_path / "jobs").rglob("reward.txt")]
    assert rewards == ["1\n", "1\n"]
