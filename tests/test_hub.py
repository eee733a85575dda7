"""Sources on the Hub, against a stand-in on this machine that answers what huggingface_hub asks."""

import hashlib
import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from conftest import archived, make_files, make_rows, make_task, run, snapshot

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OLDER = "89abcdef0123456789abcdef0123456789abcdef"
NAME = "org/name"


class Hub(ThreadingHTTPServer):
    """One dataset, org/name, with the branch `main` and the tag `v1`; each a folder on disk."""

    daemon_threads = True

    def __init__(self, main: Path, v1: Path) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.commits = {COMMIT: main, OLDER: v1}
        self.names = {"main": COMMIT, "v1": OLDER, COMMIT: COMMIT, OLDER: OLDER}
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answer(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append(path)
        api, files = f"/api/datasets/{NAME}", f"/datasets/{NAME}/resolve/"
        if path.startswith(files):
            revision, _, name = path.removeprefix(files).partition("/")
            self.file(revision, name)
        elif path == api:
            self.about("main")
        elif path.startswith(f"{api}/revision/"):
            self.about(path.removeprefix(f"{api}/revision/"))
        elif path.startswith(f"{api}/tree/"):
            self.tree(path.removeprefix(f"{api}/tree/").partition("/")[0])
        else:
            self.refuse("RepoNotFound")

    def about(self, revision: str) -> None:
        commit = self.server.names.get(revision)
        if commit is None:
            self.refuse("RevisionNotFound")
            return
        siblings = [{"rfilename": name} for name in self.names(commit)]
        self.say({"id": NAME, "sha": commit, "private": False, "tags": [], "downloads": 0, "siblings": siblings})

    def tree(self, revision: str) -> None:
        commit = self.server.names[revision]
        root = self.server.commits[commit]
        entries: list[dict[str, Any]] = []
        for name in self.names(commit):
            content = (root / name).read_bytes()
            oid = hashlib.sha1(b"blob %d\0%s" % (len(content), content)).hexdigest()
            entries.append({"type": "file", "path": name, "size": len(content), "oid": oid})
        self.say(entries)

    def file(self, revision: str, name: str) -> None:
        root = self.server.commits[self.server.names[revision]]
        if not (root / name).is_file():
            self.refuse("EntryNotFound")
            return
        content = (root / name).read_bytes()
        etag = hashlib.sha1(b"blob %d\0%s" % (len(content), content)).hexdigest()
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": self.server.names[revision]}
        self.send(200, content, "application/octet-stream", headers)

    def names(self, commit: str) -> list[str]:
        root = self.server.commits[commit]
        return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())

    def say(self, value: object) -> None:
        self.send(200, json.dumps(value).encode(), "application/json", {})

    def refuse(self, code: str) -> None:
        self.send(404, b'{"error": "not found"}', "application/json", {"X-Error-Code": code})

    def send(self, status: int, content: bytes, kind: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Type": kind, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """On `main` two tasks below tasks/, with a registry; on `v1` only the first."""
    main, v1 = tmp_path / "hub" / "main", tmp_path / "hub" / "v1"
    make_task(main / "tasks" / "one", files={"environment/data.bin": bytes(range(256))})
    make_task(main / "tasks" / "two")
    make_files(
        main, {"README.md": "---\ntags: [rl-environment, harbor]\n---\n", "registry.json": "[]", "big.bin": "0" * 9}
    )
    make_task(v1 / "tasks" / "one", files={"instruction.md": "As it was.\n"})
    server = Hub(main, v1)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def environment(address: str, tmp_path: Path) -> dict[str, str]:
    """The stand-in for the Hub; nothing of the user's: no token, no cache, no proxy."""
    return {
        "HF_ENDPOINT": address,
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_OFFLINE": "0",
        "HF_TOKEN": "",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        "ENVCONVERT_CACHE": str(tmp_path / "cache"),
    }


def inspected(source: str, hub: Hub, tmp_path: Path) -> Any:
    done = run("inspect", source, "--json", env=environment(hub.address, tmp_path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_path_at_a_revision(hub: Hub, tmp_path: Path) -> None:
    found = inspected(f"hf://datasets/{NAME}@main/tasks", hub, tmp_path)
    assert (found["format"], found["tasks"], found["containers"]["image"]) == ("harbor", 2, 2)
    fetched = [path for path in hub.asked if "/resolve/" in path]
    assert fetched
    assert all(f"/resolve/{COMMIT}/tasks/" in path for path in fetched), "only what is below the path, at one commit"


@pytest.mark.parametrize("source", [f"hf://datasets/{NAME}", NAME, f"hf://datasets/{NAME}@{COMMIT}"])
def test_a_whole_repository(source: str, hub: Hub, tmp_path: Path) -> None:
    assert inspected(source, hub, tmp_path)["tasks"] == 2


def test_another_revision(hub: Hub, tmp_path: Path) -> None:
    assert inspected(f"hf://datasets/{NAME}@v1", hub, tmp_path)["tasks"] == 1
    assert inspected(f"hf://datasets/{NAME}", hub, tmp_path)["tasks"] == 2


def test_the_report_says_where_it_came_from(hub: Hub, tmp_path: Path) -> None:
    env = environment(hub.address, tmp_path)
    done = run("convert", f"hf://datasets/{NAME}@v1", tmp_path / "out", "--to", "harbor", "--json", env=env)
    assert done.returncode == 0, done.stderr
    source = json.loads(done.stdout)["source"]
    assert (source["format"], source["uri"], source["revision"]) == ("harbor", f"hf://datasets/{NAME}@v1", OLDER)
    assert str(tmp_path) not in done.stdout


def test_what_is_fetched_is_what_is_there(hub: Hub, tmp_path: Path) -> None:
    """Real files, not links into a cache."""
    env = environment(hub.address, tmp_path)
    done = run("convert", NAME, tmp_path / "out", "--to", "harbor", env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert snapshot(tmp_path / "out" / "tasks") == snapshot(tmp_path / "hub" / "main" / "tasks")


def test_one_task(hub: Hub, tmp_path: Path) -> None:
    env = environment(hub.address, tmp_path)
    done = run("inspect", f"hf://datasets/{NAME}/tasks/two", "--list", env=env)
    assert (done.returncode, done.stdout) == (0, "two\n")


def test_packed_tasks(hub: Hub, tmp_path: Path) -> None:
    """The other style of the Hub: tasks packed in the Parquet files of its viewer."""
    main = tmp_path / "hub" / "main"
    shutil.rmtree(main / "tasks")
    make_rows(main / "data" / "train-00000-of-00001.parquet", {"one": archived(), "group/two": archived()})
    found = inspected(f"hf://datasets/{NAME}", hub, tmp_path)
    assert (found["format"], found["tasks"], found["sets"]) == ("harbor", 2, {"train": 2})
    one_file = f"hf://datasets/{NAME}/data/train-00000-of-00001.parquet"
    assert inspected(one_file, hub, tmp_path)["tasks"] == 2


def test_a_dataset_of_the_registry(hub: Hub, tmp_path: Path) -> None:
    entry = {"name": "mini", "version": "1", "description": "", "tasks": [{"name": "two", "path": "tasks/two"}]}
    (tmp_path / "hub" / "main" / "registry.json").write_text(json.dumps([entry]))
    env = environment(hub.address, tmp_path)
    assert run("inspect", NAME, "--dataset", "mini", "--list", env=env, cwd=tmp_path).stdout == "two\n"


def test_a_folder_of_that_name_comes_first(hub: Hub, tmp_path: Path) -> None:
    make_task(tmp_path / "org" / "name" / "local")
    env = environment(hub.address, tmp_path)
    assert run("inspect", NAME, "--list", env=env, cwd=tmp_path).stdout == "local\n"
    assert hub.asked == []


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("hf://datasets/org/unknown", "hf://datasets/org/unknown"),
        ("org/unknown", "org/unknown"),
        (f"hf://datasets/{NAME}@v9", "'v9'"),
        (f"hf://datasets/{NAME}/nothing/here", "'nothing/here'"),
    ],
)
def test_what_is_not_there_is_4(source: str, says: str, hub: Hub, tmp_path: Path) -> None:
    done = run("inspect", source, "--json", env=environment(hub.address, tmp_path), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (4, "")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert says in done.stderr


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
