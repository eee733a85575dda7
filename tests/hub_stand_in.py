"""A stand-in for the Hugging Face Hub on loopback: the endpoints that huggingface_hub calls for a dataset repository.

Repositories are real git repositories, so that a commit has the id that a clone finds. Faults can be injected. A client
is sent here by the environment variable HF_ENDPOINT, which huggingface_hub reads when it is imported. Xet, which the
real Hub stores large files with, is not here: HF_HUB_DISABLE_XET=1 makes the client use LFS.
"""

import base64
import hashlib
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, quote, unquote, urlsplit

from pathspec import PathSpec

PAGE = 1000
"""Entries of a tree that one answer holds, as on the Hub."""
LARGEST_REGULAR = 10_000_000
_ATTRIBUTES = "".join(
    f"*.{ending} filter=lfs diff=lfs merge=lfs -text\n" for ending in ("bin", "gz", "parquet", "tar", "zip")
)


@dataclass(frozen=True)
class Blob:
    """A file: its bytes, and whether git holds an LFS pointer to them."""

    content: bytes
    is_lfs: bool = False

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def stored(self) -> bytes:
        """What git holds."""
        return pointer(self.sha256, len(self.content)) if self.is_lfs else self.content

    @property
    def oid(self) -> str:
        return hashlib.sha1(b"blob %d\0%s" % (len(self.stored), self.stored)).hexdigest()


def pointer(sha256: str, size: int) -> bytes:
    """An LFS pointer (git-lfs/docs/spec.md)."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()


@dataclass(frozen=True)
class Commit:
    title: str
    files: Mapping[str, Blob]
    folders: Mapping[str, str]
    """Ids of git's trees by path."""


class Repository:
    """A dataset. Who may write may read; where it is private or gated, `readers` may too."""

    def __init__(self, place: Path, *, private: bool = False, gated: bool = False) -> None:
        self.place = place
        self.private = private
        self.gated = gated
        self.readers: set[str] = set()
        self.commits: dict[str, Commit] = {}
        self.names: dict[str, str] = {}
        """Commits by branch and tag."""
        self.objects: dict[str, bytes] = {}
        """Contents of LFS by SHA-256."""
        self.uploads: list[str] = []
        """SHA-256 of each content that was uploaded to LFS, in order."""
        place.mkdir(parents=True)
        self._git("init", "--quiet", "--bare", "--initial-branch=main", ".")

    @property
    def head(self) -> str:
        return self.names["main"]

    @property
    def files(self) -> Mapping[str, Blob]:
        """At the head."""
        return self.commits[self.head].files

    @property
    def history(self) -> list[str]:
        """Titles of the commits, the first first."""
        return [commit.title for commit in self.commits.values()]

    def contents(self, revision: str = "main") -> dict[str, bytes]:
        return {path: blob.content for path, blob in self.commits[self.names.get(revision, revision)].files.items()}

    def fill(self, folder: Path, title: str = "As it was given") -> str:
        """Commit what `folder` holds, and nothing else but .gitattributes."""
        found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
        changes: dict[str, Blob | None] = dict.fromkeys(self.files.keys() - {".gitattributes"})
        changes |= {name: Blob(path.read_bytes(), self.is_lfs(name, path.read_bytes())) for name, path in found.items()}
        return self.commit(changes, title)

    def is_lfs(self, path: str, content: bytes, size: int | None = None) -> bool:
        """Whether the Hub wants `path` in LFS: for its name, its size, or as it begins like no text."""
        attributes = self.files.get(".gitattributes") if self.names else None
        lines = attributes.content.decode().splitlines() if attributes else []
        patterns = PathSpec.from_lines("gitignore", [line.split()[0] for line in lines if "filter=lfs" in line])
        large = (len(content) if size is None else size) > LARGEST_REGULAR
        return patterns.match_file(path) or large or b"\0" in content[:512]

    def ignores(self, path: str) -> bool:
        rules = self.files.get(".gitignore")
        return rules is not None and PathSpec.from_lines("gitignore", rules.content.decode().splitlines()).match_file(
            path
        )

    def commit(self, changes: Mapping[str, Blob | None], title: str) -> str:
        """A commit on main with `changes`; None deletes. Its id."""
        files = dict(self.files) if self.names else {}
        stream = [f"commit refs/heads/main\ncommitter Hub <hub@example.com> {len(self.commits)} +0000\n".encode()]
        stream.append(b"data %d\n%s\n" % (len(title.encode()), title.encode()))
        if self.names:
            stream.append(f"from {self.head}\n".encode())
        for path, blob in sorted(changes.items(), key=lambda item: item[1] is not None):
            if blob is None:
                files.pop(path)
                stream.append(f"D {_quoted(path)}\n".encode())
            else:
                files[path] = blob
                if blob.is_lfs:
                    self.objects[blob.sha256] = blob.content
                stream.append(f"M 100644 inline {_quoted(path)}\n".encode())
                stream.append(b"data %d\n%s\n" % (len(blob.stored), blob.stored))
        self._git("fast-import", "--quiet", "--force", input=b"".join(stream))
        commit = self._git("rev-parse", "refs/heads/main").decode().strip()
        lines = self._git("ls-tree", "-r", "-t", "-z", commit).decode().split("\0")
        entries = [line.split("\t", 1) for line in lines if line]
        trees = {path: about.split()[2] for about, path in entries if about.split()[1] == "tree"}
        assert {path for about, path in entries if about.split()[1] == "blob"} == set(files)
        self.commits[commit] = Commit(title, files, trees)
        self.names["main"] = commit
        return commit

    def clone(self, place: Path) -> Path:
        """A clone by git, with the contents of LFS in their places as git-lfs puts them there."""
        subprocess.run(["git", "clone", "--quiet", self.place, place], check=True, capture_output=True)
        for path, blob in self.files.items():
            if blob.is_lfs:
                (place / path).write_bytes(blob.content)
        return place

    def _git(self, *arguments: str, input: bytes = b"") -> bytes:
        done = subprocess.run(["git", *arguments], cwd=self.place, input=input, capture_output=True)
        assert done.returncode == 0, done.stderr
        return done.stdout


def _quoted(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


@dataclass
class Fault:
    """Something that goes wrong at requests whose `METHOD path` matches `at`.

    status: the answer is `status`, with `headers`. cut: the connection breaks after `after` bytes of the larger of
    request and answer. lose: the request is done, and the connection breaks before the answer. kill, lose and kill: the
    process `victim` ends there, before the request is done or after it.
    """

    at: str
    act: Literal["status", "cut", "lose", "kill", "lose and kill"]
    status: int = 503
    headers: Mapping[str, str] = field(default_factory=dict)
    after: int = 0
    skip: int = 0
    """So many matching requests pass before it strikes."""
    times: int = 1


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    authorized: bool
    """Whether it brought a token."""

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Hub(ThreadingHTTPServer):
    """The stand-in. `users` has names by token; a user writes to the namespaces in `writers`."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, place: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.place = place
        self.repositories: dict[str, Repository] = {}
        self.users: dict[str, str] = {}
        self.writers: dict[str, set[str]] = {}
        self.faults: list[Fault] = []
        self.asked: list[Request] = []
        self.victim = 0
        """The process that a fault ends."""
        self.multipart: int | None = None
        """Size of the parts in which LFS wants a content; None: in one."""
        self.parts: dict[tuple[str, int], bytes] = {}
        self.errors: list[BaseException | None] = []
        """Faults of the stand-in itself."""
        self.lock = threading.RLock()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def storage(self) -> str:
        """Where LFS contents are: another origin, to which no token goes."""
        return f"http://localhost:{self.server_address[1]}"

    def user(self, token: str, name: str, *namespaces: str) -> None:
        """Let whoever brings `token` in, as `name`, who writes to `namespaces`."""
        self.users[token] = name
        self.writers[name] = {name, *namespaces}

    def add(self, name: str, *, private: bool = False, gated: bool = False) -> Repository:
        """A dataset as the Hub makes it: with .gitattributes, and nothing else."""
        made = Repository(self.place / f"{name}.git", private=private, gated=gated)
        made.commit({".gitattributes": Blob(_ATTRIBUTES.encode())}, "initial commit")
        self.repositories[name] = made
        return made

    def struck(self, request: Request) -> Fault | None:
        """The fault that strikes `request`."""
        with self.lock:
            self.asked.append(request)
            for fault in self.faults:
                if fault.times and re.search(fault.at, str(request)):
                    if fault.skip:
                        fault.skip -= 1
                        continue
                    fault.times -= 1
                    return fault
        return None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep what went wrong here, and say nothing of clients that go away."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError) and str(error) != "I/O operation on closed file.":
            self.errors.append(error)


@contextmanager
def serving(place: Path) -> Iterator[Hub]:
    """A stand-in that keeps its repositories at `place`."""
    hub = Hub(place)
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()
    assert hub.errors == []


def environment(hub: str, place: Path, token: str = "") -> dict[str, str]:
    """For a process that takes `hub` for the Hub: nothing of the user's own, such as a token, a cache or a proxy."""
    return {
        "HF_ENDPOINT": hub,
        "HF_HOME": str(place / "hf"),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_OFFLINE": "0",
        "HF_TOKEN": token,
        "HTTP_PROXY": "",
        "http_proxy": "",
        "ALL_PROXY": "",
        "all_proxy": "",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        "ENVCONVERT_CACHE": str(place / "cache"),
    }


class _CutError(Exception):
    """The connection is to break here."""


class _RefusedError(Exception):
    """An answer with a status of 400 or more."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})


class _Answer(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"
    fault: Fault | None

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._do()

    def do_GET(self) -> None:
        self._do()

    def do_POST(self) -> None:
        self._do()

    def do_PUT(self) -> None:
        self._do()

    def _do(self) -> None:
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        self.query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        fault = self.server.struck(Request(self.command, path, "Authorization" in self.headers))
        self.fault = fault
        try:
            self.body = self._read()
            if fault is not None and fault.act == "kill":
                self._kill()
            if fault is not None and fault.act == "status":
                self._send(fault.status, b'{"error": "as the test wants it"}', dict(fault.headers))
                return
            with self.server.lock:
                self._route(path)
        except _RefusedError as refused:
            self._send(refused.status, json.dumps({"error": str(refused)}).encode(), refused.headers)
        except _CutError:
            self.close_connection = True
            # no FIN but a reset: what was sent is not taken for all
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def _read(self) -> bytes:
        """The body of the request."""
        if self.headers.get("Transfer-Encoding", "") == "chunked":
            body = bytearray()
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            size = int(self.headers.get("Content-Length") or 0)
            if self.fault is not None and self.fault.act == "cut" and size > self.fault.after > 0:
                self.rfile.read(self.fault.after)
                raise _CutError
            body = bytearray(self.rfile.read(size))
        if self.fault is not None and self.fault.act == "cut" and self.command in ("POST", "PUT"):
            raise _CutError
        return bytes(body)

    def _kill(self) -> None:
        os.kill(self.server.victim, signal.SIGKILL)
        raise _CutError

    def _json(self, value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self._send(status, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _send(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        if self.fault is not None and self.fault.act == "lose":
            raise _CutError
        if self.fault is not None and self.fault.act == "lose and kill":
            self._kill()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.fault is not None and self.fault.act == "cut":
            self.wfile.write(content[: self.fault.after])
            raise _CutError
        self.wfile.write(content)

    # What is asked for.

    def _route(self, path: str) -> None:
        name = r"(?P<name>[^/]+/[^/]+?)"
        revision = r"(?P<revision>[^/]+)"
        routes: list[tuple[str, Callable[..., None]]] = [
            ("GET /api/whoami-v2", self._whoami),
            ("POST /api/repos/create", self._create),
            ("POST /api/validate-yaml", self._validate),
            (f"GET /api/datasets/{name}(/revision/{revision})?", self._about),
            (f"GET /api/datasets/{name}/tree/{revision}(/(?P<path>.+))?", self._tree),
            (f"POST /api/datasets/{name}/paths-info/{revision}", self._paths),
            (f"POST /api/datasets/{name}/preupload/{revision}", self._preupload),
            (f"POST /api/datasets/{name}/commit/{revision}", self._commit),
            (rf"POST /datasets/{name}\.git/info/lfs/objects/batch", self._batch),
            (rf"POST /datasets/{name}\.git/info/lfs/verify", self._verify),
            (f"(GET|HEAD) /datasets/{name}/resolve/{revision}/(?P<path>.+)", self._resolve),
            (rf"GET /datasets/{name}(\.git)?/(?P<path>info/refs)", self._git),
            (rf"POST /datasets/{name}(\.git)?/(?P<path>git-upload-pack)", self._git),
            (f"PUT /lfs/{name}/(?P<sha256>[0-9a-f]+)", self._upload),
            (f"PUT /lfs/{name}/(?P<sha256>[0-9a-f]+)/(?P<number>[0-9]+)", self._upload_part),
            (f"POST /lfs/{name}/(?P<sha256>[0-9a-f]+)/complete", self._complete),
            (f"GET /lfs/{name}/(?P<sha256>[0-9a-f]+)", self._object),
        ]
        for pattern, answer in routes:
            if match := re.fullmatch(pattern, f"{self.command} {path}", re.DOTALL):
                answer(**match.groupdict())
                return
        raise _RefusedError(404, f"the stand-in does not know {self.command} {path}")

    def _who(self) -> str | None:
        """The user who asks; None: nobody says."""
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and token not in self.server.users:
            raise _RefusedError(401, "Invalid credentials in Authorization header")
        return self.server.users.get(token)

    def _found(self, name: str, *, contents: bool = False, write: bool = False) -> Repository:
        """The repository `name`, if whoever asks may see it, its `contents`, or `write` to it."""
        user = self._who()
        found = self.server.repositories.get(name)
        writes = user is not None and name.partition("/")[0] in self.server.writers[user]
        invited = found is not None and (writes or user in found.readers)
        if found is None or (found.private and not invited):
            if user is None:
                raise _RefusedError(401, "Invalid username or password.")
            raise _RefusedError(404, "Repository not found", "RepoNotFound")
        if found.gated and contents and not invited:
            reason = f"Access to dataset {name} is restricted."
            raise _RefusedError(401 if user is None else 403, reason, "GatedRepo")
        if write and not writes:
            if user is None:
                raise _RefusedError(401, "Invalid username or password.")
            raise _RefusedError(403, "You don't have the rights to write to this repository")
        return found

    def _at(self, repository: Repository, revision: str | None) -> str:
        commit = repository.names.get(revision or "main", revision or "main")
        if commit not in repository.commits:
            raise _RefusedError(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return commit

    def _whoami(self) -> None:
        user = self._who()
        if user is None:
            raise _RefusedError(401, "Invalid username or password.")
        orgs = [{"name": name, "type": "org"} for name in sorted(self.server.writers[user] - {user})]
        self._json({"type": "user", "name": user, "orgs": orgs, "auth": {"type": "access_token"}})

    def _create(self) -> None:
        said = json.loads(self.body)
        user = self._who()
        if user is None:
            raise _RefusedError(401, "Invalid username or password.")
        name = f"{said.get('organization') or user}/{said['name']}"
        assert said["type"] == "dataset"
        if name.partition("/")[0] not in self.server.writers[user]:
            raise _RefusedError(403, f"You don't have the rights to create a dataset under {name.partition('/')[0]}")
        url = f"{self.server.address}/datasets/{name}"
        if name in self.server.repositories:
            self._json({"error": "You already created this dataset repo", "url": url}, 409)
            return
        self.server.add(name, private=bool(said.get("private")) or said.get("visibility") == "private")
        self._json({"url": url, "name": name})

    def _validate(self) -> None:
        self._json({"warnings": [], "errors": []})

    def _about(self, name: str, revision: str | None) -> None:
        found = self._found(name)
        commit = self._at(found, revision)
        blobs = "blobs" in self.query
        siblings = [
            {"rfilename": path} | ({"size": len(blob.content), "blobId": blob.oid} if blobs else {})
            for path, blob in sorted(found.commits[commit].files.items())
        ]
        about = {"id": name, "sha": commit, "private": found.private, "tags": [], "downloads": 0, "siblings": siblings}
        self._json(about | {"gated": "manual" if found.gated else False})

    def _tree(self, name: str, revision: str, path: str | None) -> None:
        found = self._found(name)
        commit = found.commits[self._at(found, revision)]
        if path is not None and path not in commit.folders:
            raise _RefusedError(404, f"{path} does not exist on {revision}", "EntryNotFound")
        prefix = f"{path}/" if path else ""
        deep = self.query.get("recursive", "").lower() == "true"
        there = [name for name in {**commit.files, **commit.folders} if name.startswith(prefix) and name != path]
        wanted = sorted(name for name in there if deep or "/" not in name.removeprefix(prefix))
        start = int(self.query.get("cursor", 0))
        page = wanted[start : start + PAGE]
        headers = {}
        if start + PAGE < len(wanted):
            query = f"recursive={self.query.get('recursive', 'False')}&cursor={start + PAGE}"
            headers["Link"] = f'<{self.server.address}{urlsplit(self.path).path}?{query}>; rel="next"'
        self._json([self._entry(commit, name) for name in page], headers=headers)

    def _entry(self, commit: Commit, path: str) -> dict[str, Any]:
        if path in commit.folders:
            return {"type": "directory", "oid": commit.folders[path], "size": 0, "path": path}
        blob = commit.files[path]
        entry = {"type": "file", "oid": blob.oid, "size": len(blob.content), "path": path}
        if blob.is_lfs:
            lfs = {"oid": blob.sha256, "size": len(blob.content), "pointerSize": len(blob.stored)}
            return {**entry, "lfs": lfs}
        return entry

    def _paths(self, name: str, revision: str) -> None:
        found = self._found(name)
        commit = found.commits[self._at(found, revision)]
        paths = parse_qs(self.body.decode())["paths"]
        self._json([self._entry(commit, path) for path in paths if path in commit.files or path in commit.folders])

    def _preupload(self, name: str, revision: str) -> None:
        found = self._found(name, write=True)
        files = found.commits[self._at(found, revision)].files
        answers: list[dict[str, Any]] = []
        for item in json.loads(self.body)["files"]:
            path = item["path"]
            mode = "lfs" if found.is_lfs(path, base64.b64decode(item["sample"]), item["size"]) else "regular"
            answer = {"path": path, "uploadMode": mode, "shouldIgnore": found.ignores(path)}
            if path in files:
                answer["oid"] = files[path].sha256 if files[path].is_lfs else files[path].oid
            answers.append(answer)
        self._json({"files": answers})

    def _commit(self, name: str, revision: str) -> None:
        found = self._found(name, write=True)
        changes: dict[str, Blob | None] = {}
        title = ""
        for line in self.body.splitlines():
            key, value = json.loads(line)["key"], json.loads(line)["value"]
            if key == "header":
                title = value["summary"]
                if value.get("parentCommit", found.head) != found.head:
                    raise _RefusedError(412, "A commit has happened since. Please refresh and try again.")
            elif key == "file":
                changes[value["path"]] = Blob(base64.b64decode(value["content"]))
            elif key == "lfsFile":
                if value["oid"] not in found.objects:
                    raise _RefusedError(400, f"LFS pointer pointed to a file that does not exist: {value['path']}")
                changes[value["path"]] = Blob(found.objects[value["oid"]], is_lfs=True)
            else:
                assert key == "deletedFile", key
                if value["path"] not in found.files:
                    raise _RefusedError(404, "A file with this name doesn't exist", "EntryNotFound")
                changes.setdefault(value["path"], None)
        for path, blob in changes.items():
            if blob is not None and not blob.is_lfs and found.is_lfs(path, blob.content):
                raise _RefusedError(400, f"Your push was rejected: {path} belongs into LFS")
        commit = found.commit(changes, title)
        self._json({"commitUrl": f"{self.server.address}/datasets/{name}/commit/{commit}", "commitOid": commit})

    def _batch(self, name: str) -> None:
        found = self._found(name, write=True)
        said = json.loads(self.body)
        assert said["operation"] == "upload"
        answers: list[dict[str, Any]] = []
        for item in said["objects"]:
            sha256, size = item["oid"], item["size"]
            answer: dict[str, Any] = {"oid": sha256, "size": size}
            if sha256 not in found.objects:
                upload: dict[str, Any] = {"href": f"{self.server.storage}/lfs/{name}/{sha256}"}
                if (part := self.server.multipart) is not None and size > part:
                    count = -(-size // part)
                    urls = {str(n): f"{self.server.storage}/lfs/{name}/{sha256}/{n}" for n in range(1, count + 1)}
                    upload = {"href": f"{self.server.address}/lfs/{name}/{sha256}/complete"}
                    upload["header"] = {"chunk_size": str(part), **urls}
                verify = {"href": f"{self.server.address}/datasets/{name}.git/info/lfs/verify"}
                answer["actions"] = {"upload": upload, "verify": verify}
            answers.append(answer)
        self._json({"transfer": "multipart" if self.server.multipart else "basic", "objects": answers})

    def _verify(self, name: str) -> None:
        found = self._found(name, write=True)
        said = json.loads(self.body)
        if len(found.objects.get(said["oid"], b"")) != said["size"]:
            raise _RefusedError(422, "the content is not there, or of another size")
        self._json({})

    def _keep(self, name: str, sha256: str, content: bytes) -> None:
        if hashlib.sha256(content).hexdigest() != sha256:
            raise _RefusedError(400, "the content does not have this SHA-256")
        found = self.server.repositories[name]
        found.uploads.append(sha256)
        found.objects[sha256] = content

    def _upload(self, name: str, sha256: str) -> None:
        self._keep(name, sha256, self.body)
        self._json({})

    def _upload_part(self, name: str, sha256: str, number: str) -> None:
        self.server.parts[sha256, int(number)] = self.body
        self._json({}, headers={"ETag": f'"{hashlib.md5(self.body).hexdigest()}"'})

    def _complete(self, name: str, sha256: str) -> None:
        numbers = [part["partNumber"] for part in json.loads(self.body)["parts"]]
        self._keep(name, sha256, b"".join(self.server.parts[sha256, number] for number in numbers))
        self._json({})

    def _resolve(self, name: str, revision: str, path: str) -> None:
        found = self._found(name, contents=True)
        commit = self._at(found, revision)
        blob = found.commits[commit].files.get(path)
        if blob is None:
            raise _RefusedError(404, "Entry not found", "EntryNotFound")
        headers = {"X-Repo-Commit": commit, "ETag": f'"{blob.oid}"'}
        if blob.is_lfs:
            headers |= {"X-Linked-Etag": f'"{blob.sha256}"', "X-Linked-Size": str(len(blob.content))}
            headers["Location"] = f"{self.server.storage}/lfs/{quote(name)}/{blob.sha256}?signature=of-the-stand-in"
            self._send(302, b"", headers)
        else:
            self._ranged(blob.content, headers)

    def _object(self, name: str, sha256: str) -> None:
        if self.query.get("signature") != "of-the-stand-in":
            raise _RefusedError(403, "the address is not signed")
        self._ranged(self.server.repositories[name].objects[sha256], {"ETag": f'"{sha256}"'})

    def _ranged(self, content: bytes, headers: Mapping[str, str]) -> None:
        if match := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            start, stop = int(match[1]), int(match[2] or len(content) - 1) + 1
            range = {"Content-Range": f"bytes {start}-{stop - 1}/{len(content)}"}
            self._send(206, content[start:stop], {**headers, **range})
        else:
            self._send(200, content, headers)

    def _git(self, name: str, path: str) -> None:
        """A clone or fetch by git, answered by git's own server."""
        found = self._found(name, contents=True)
        variables = {
            **os.environ,
            "GIT_PROJECT_ROOT": str(found.place),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": f"/{path}",
            "REQUEST_METHOD": self.command,
            "QUERY_STRING": urlsplit(self.path).query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(self.body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            # any commit may be asked for, as on the Hub: Harbor fetches the one that registry.json names
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "uploadpack.allowAnySHA1InWant",
            "GIT_CONFIG_VALUE_0": "true",
        }
        done = subprocess.run(["git", "http-backend"], env=variables, input=self.body, capture_output=True)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        status = int(headers.pop("Status", "200 OK").split()[0])
        self._send(status, content, headers)
