"""Push: a repository that publish wrote, to the Hugging Face Hub.

First the files, in commits of a size that the Hub takes, then registry.json, whose tasks are pinned to the last of
these. What is on the Hub is compared before each step: a push that was broken off goes on where it stopped, and one of
what is there already does nothing.
"""

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from envconvert.formats import losses
from envconvert.formats.files import UnsafeTreeError, walk
from envconvert.formats.harbor import registry
from envconvert.formats.losses import Loss, one_line
from envconvert.formats.repository import TASKS
from envconvert.hub import NAME, PUSHED, SIGN_IN, Hub, PushedFiles, RemoteFile, reason
from envconvert.report import FILE, RepositoryReport, repository, to_json

# What the Hub takes: https://huggingface.co/docs/hub/storage-limits
ENTRIES = 10_000
"""Files and folders in one folder."""
FILES = 500
"""Files of a commit; the Hub counts commits, and lets 128 an hour pass."""
BYTES = 50_000_000
"""Of the files of a commit that git holds, as they are: the request has them in base 64."""
_CONFLICTS = 5
"""So often another may push in between."""
_LARGEST_REGULAR = 10_000_000  # bytes: what is larger goes to LFS, before the commit

_CARD = "README.md"
_LAST = (FILE, _CARD)
"""Files that say what the others are, in order: they come when all of these are there."""
_UNFIT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")  # control characters, and bytes that are no UTF-8
_NEVER = (".git", ".cache")
"""Names of folders that git, or huggingface_hub, does not push."""


_ASIDE = {*_NEVER, PUSHED}
"""What stays here where it stands at the root: what git and huggingface_hub note in a clone, or a download."""


class PushError(Exception):
    """A repository is not pushed, or not wholly: what is in the way, and what to do."""


class Pushed(msgspec.Struct, kw_only=True):
    """What a push did. The counts are those of files."""

    repository: str
    """Its address, for people and for git."""
    revision: str
    """The commit that has all of it."""
    pinned: str | None
    """The commit that registry.json names; None where there is no registry."""
    created: bool
    written: int
    deleted: int
    unchanged: int
    losses: list[Loss]
    """What of the repository the Hub does not hold."""


def push(folder: str | Path, name: str, *, say: Callable[[str], None] = print) -> Pushed:
    """Push the repository at `folder`, which publish wrote, to the dataset ORG/NAME on the Hub.

    A dataset that is not there is made, and is private; the visibility of one that is there stays. Files that an
    earlier push wrote and that are gone from `folder` are deleted; all else there stays, and where a file of another
    is in the way, nothing is pushed. The card is replaced. The token is that of HF_TOKEN or of `hf auth login`. Raises
    `PushError`.
    """
    from huggingface_hub import get_token

    place = Path(folder)
    if not NAME.fullmatch(name):
        raise PushError(f"{name!r} is not ORG/NAME, such as a dataset on the Hub is called")
    if repository(place) is None:
        raise PushError(f"{place}: publish did not write it; envconvert publish SRC DST makes what can be pushed")
    local = _Local(place)
    hub = Hub(say)
    if get_token() is None:
        raise PushError(f"{hub.url(name)}: to push, {SIGN_IN}")
    try:
        return _Push(hub, name, local, say).run()
    except PushError:
        raise
    except OSError as error:
        if error.filename is not None:  # a file here, and not the Hub's answer
            raise
        raise PushError(f"{hub.url(name)}: {reason(error, hub, name)}") from None
    except Exception as error:  # the HTTP client's own exceptions come through, whichever client that is
        raise PushError(f"{hub.url(name)}: {reason(error, hub, name)}") from None


def push_losses(folder: str | Path) -> list[Loss]:
    """What the Hub will not hold of the repository at `folder`: modes, links and empty folders. By path."""
    place = Path(folder)
    found: list[Loss] = []
    for path, folders, names in os.walk(place):
        here = os.path.relpath(path, place)
        if here == ".":
            folders[:] = [name for name in folders if name not in _ASIDE]
        if here != "." and not folders and not names:
            found.append(_loss(losses.HUB_FOLDER, place, here, None))
        for name in [*folders, *names]:
            inner = os.path.normpath(f"{here}/{name}")
            mode = os.lstat(place / inner).st_mode
            if stat.S_ISLNK(mode):
                found.append(_loss(losses.HUB_LINK, place, inner, os.readlink(place / inner)))
            elif stat.S_ISREG(mode) and mode & 0o111:
                kind = losses.HUB_SCRIPT if name in _SCRIPTS.get(Path(inner).parent.name, ()) else losses.HUB_MODE
                found.append(_loss(kind, place, inner, oct(stat.S_IMODE(mode))[2:]))
    return sorted(found, key=lambda loss: (loss.task, loss.field))


_SCRIPTS = {"tests": ("test.sh",), "solution": ("solve.sh",)}
"""Files that Harbor makes executable before it runs them, by the folder that they are in."""


def _loss(kind: losses.Kind, root: Path, path: str, value: object) -> Loss:
    parts = path.split("/")
    task = next((depth for depth in range(2, len(parts)) if (root / "/".join(parts[:depth]) / "task.toml").exists()), 0)
    if parts[0] != TASKS or not task:
        return kind.loss(task="", format="hub", field=path, value=value)
    return kind.loss(task=parts[task - 1], format="hub", field="/".join(parts[task:]), value=value)


class _Local:
    """The repository on this machine, as the Hub is to have it."""

    def __init__(self, root: Path) -> None:
        """Raises `PushError` where the Hub cannot take it."""
        self.root = root
        self._ids: dict[tuple[str, bool], str] = {}
        """By path and whether LFS has it: what it is called there, so that no file is read twice."""
        try:
            tree = walk(root)
        except UnsafeTreeError as error:
            reason = error.kind.message.format(value=repr(error.values.get("value")))
            raise PushError(f"{root / error.path}: {reason}; {error.kind.hint}") from None
        entries = [entry for entry in tree.entries if entry.path.partition("/")[0] not in _ASIDE]
        if odd := next((entry.path for entry in entries if _UNFIT.search(entry.path)), None):
            raise PushError(f"{root}: {one_line(odd)}: the Hub takes no such name; rename it")
        if odd := next((e.path for e in entries if not {*_NEVER}.isdisjoint(e.path.split("/"))), None):
            raise PushError(
                f"{root / odd}: the Hub takes nothing that is called {' or '.join(_NEVER)}; "
                "leave the task out (--tasks), or rename it"
            )
        self.files = list(_files(root))
        holders = {entry.path.rpartition("/")[0] for entry in entries}
        self.pushed = PushedFiles(
            files=sorted(self.files),
            executable=sorted(path for path in self.files if (root / path).stat().st_mode & 0o111),
            empty=sorted(e.path for e in entries if e.kind == "folder" and e.path not in holders),
        )
        self.registry = (root / registry.FILE).read_bytes() if registry.FILE in self.files else None

    def is_at(self, path: str, remote: RemoteFile | None) -> bool:
        """Whether the Hub has the bytes of `path`."""
        if remote is None or (self.root / path).stat().st_size != remote.size:
            return False
        key = path, remote.lfs is not None
        if key not in self._ids:
            with open(self.root / path, "rb") as file:
                in_lfs = remote.lfs is not None
                self._ids[key] = hashlib.file_digest(file, "sha256").hexdigest() if in_lfs else git_blob(file.read())
        return self._ids[key] == (remote.lfs or remote.blob)


def _files(root: Path) -> Iterator[str]:
    """Paths of the files, a link's target in its place. Raises `PushError`."""
    for path, folders, names in os.walk(root, followlinks=True):
        here = os.path.relpath(path, root)
        if here == ".":
            folders[:] = [name for name in folders if name not in _ASIDE]
            names = [name for name in names if name not in _ASIDE]
        if len(folders) + len(names) > ENTRIES:
            raise PushError(
                f"{path}: it has {len(folders) + len(names)} entries, and the Hub takes {ENTRIES}; "
                "push fewer tasks (--tasks, --limit)"
            )
        yield from (os.path.normpath(f"{here}/{name}") for name in names if os.path.isfile(f"{path}/{name}"))


def git_blob(content: bytes) -> str:
    """The id that git gives a file of this content."""
    return hashlib.sha1(b"blob %d\0%s" % (len(content), content)).hexdigest()


class _Change(msgspec.Struct, frozen=True):
    """What becomes of a path on the Hub: what is there now, by `content` or by the file here; or that it is deleted."""

    path: str
    content: bytes | None = None
    is_deleted: bool = False


class _AgainError(Exception):
    """A commit failed in a way that has passed: whether it is there, a look at the Hub tells."""


class _Push:
    """One push to one dataset."""

    def __init__(self, hub: Hub, name: str, local: _Local, say: Callable[[str], None]) -> None:
        self._hub = hub
        self._name = name
        self._local = local
        self._say = say
        self._head = ""
        self._remote: dict[str, RemoteFile] = {}
        self._earlier = PushedFiles()
        self._created = False
        self._tried = 0
        """Commits that failed since the last one that did not."""
        self._kept: set[str] = set()
        """Paths that the Hub took, and says that it has."""

    def run(self) -> Pushed:
        """Push until all of it is there."""
        self._make()
        self._look()
        planned = self._changes()
        written = {change.path for change in planned if not change.is_deleted}
        while True:
            try:
                pinned = self._once()
                break
            except _AgainError:
                self._look()
        local = set(self._local.files)
        return Pushed(
            repository=self._hub.url(self._name),
            revision=self._head,
            pinned=pinned,
            created=self._created,
            written=len(local & written),
            deleted=sum(change.is_deleted for change in planned),
            unchanged=len(local - written),
            losses=push_losses(self._local.root),
        )

    def _make(self) -> None:
        """Make the dataset, if it is not there."""
        if not self._is_there():
            create = partial(self._hub.api.create_repo, self._name, repo_type="dataset", private=True, exist_ok=True)
            self._hub.ask(create)
            self._created = True
            self._say(f"{self._hub.url(self._name)}: made, private")

    def _is_there(self) -> bool:
        from huggingface_hub.errors import HfHubHTTPError

        try:
            self._hub.ask(lambda: self._hub.api.dataset_info(self._name))
        except HfHubHTTPError as error:
            if error.response.status_code not in (401, 404):
                raise
            return False
        return True

    def _once(self) -> str | None:
        """Bring the Hub from where it is to where it is to be; the commit that registry.json is pinned to."""
        while changes := self._changes():
            if lost := sorted(self._kept & {change.path for change in changes if change.content is None}):
                raise PushError(
                    f"{self._hub.url(self._name)}: it did not keep {', '.join(lost[:5])} ({len(lost)} files); "
                    "look for a .gitignore there, or for another who pushes"
                )
            done = 0
            batches = list(_batches(changes, self._local.root))
            for number, batch in enumerate(batches, 1):
                self._commit(batch, f"Publish with envconvert, {number} of {len(batches)}")
                done += len(batch)
                self._say(f"{self._hub.url(self._name)}: {done} of {len(changes)} changes pushed")
            self._look()
        return self._pin()

    def _look(self) -> None:
        """See what the Hub has."""
        hub, name = self._hub, self._name
        self._head = hub.ask(lambda: hub.api.dataset_info(name, revision="main")).sha or ""
        self._remote = hub.files(name, self._head)
        content = self._content(PUSHED)
        self._earlier = PushedFiles() if content is None else msgspec.json.decode(content, type=PushedFiles)

    def _content(self, path: str) -> bytes | None:
        """The file at `path` on the Hub; None where there is none."""
        from huggingface_hub import hf_hub_download

        if path not in self._remote:
            return None
        with tempfile.TemporaryDirectory(prefix="envconvert-") as folder:
            get = partial(hf_hub_download, self._name, path, repo_type="dataset", revision=self._head)
            return Path(self._hub.ask(lambda: get(local_dir=folder))).read_bytes()

    def _changes(self) -> list[_Change]:
        """What is to be done but for registry.json, in order: nothing is there that was not said to be ours before."""
        local, earlier = set(self._local.files), set(self._earlier.files)
        gone = sorted((earlier - local) & self._remote.keys())
        differing = [
            path
            for path in self._local.files
            if path != registry.FILE and not self._local.is_at(path, self._remote.get(path))
        ]
        self._refuse_others(differing, earlier)
        whole = PushedFiles(
            files=sorted(local | set(gone)), executable=self._local.pushed.executable, empty=self._local.pushed.empty
        )
        changes: list[_Change] = []
        if not local <= earlier and (gone or differing):
            changes.append(_Change(PUSHED, to_json(whole).encode()))
        changes += [_Change(path, is_deleted=True) for path in gone]
        changes += sorted(map(_Change, differing), key=_order)
        last = to_json(self._local.pushed).encode()
        now = changes[0].content if changes and changes[0].path == PUSHED else None
        there = self._remote.get(PUSHED)
        if now != last and (now is not None or there is None or not _is_content(last, there)):
            changes.append(_Change(PUSHED, last))
        return changes

    def _refuse_others(self, paths: Collection[str], earlier: Collection[str]) -> None:
        """Raise `PushError` where a file on the Hub that envconvert did not write would be replaced."""
        foreign = [path for path in paths if path in self._remote and path not in earlier and path != _CARD]
        if not foreign:
            return
        content = self._content(FILE)  # the dataset may have been pushed by git
        try:
            report = msgspec.json.decode(content or b"", type=RepositoryReport)
        except msgspec.DecodeError:
            report = None
        ours = set(report.entries) if report else set()
        if others := sorted(path for path in foreign if path.partition("/")[0] not in ours):
            raise PushError(
                f"{self._hub.url(self._name)}: {', '.join(others[:5])}: {len(others)} files there are in the way, and "
                "envconvert did not write them; move them, or push to another name"
            )

    def _commit(self, changes: Sequence[_Change], title: str) -> None:
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        last = {change.path: change for change in changes}.values()  # PUSHED may be there twice
        operations: list[CommitOperationAdd | CommitOperationDelete] = [
            CommitOperationDelete(change.path, is_folder=False)
            if change.is_deleted
            else CommitOperationAdd(change.path, change.content or str((self._local.root / change.path).resolve()))
            for change in last
        ]
        commit = partial(self._hub.api.create_commit, self._name, operations, commit_message=title)
        try:
            done = self._hub.once(lambda: commit(repo_type="dataset", revision="main", parent_commit=self._head))
        except Exception as error:
            self._wait(error)
            raise _AgainError from None
        self._tried = 0
        self._head = done.oid
        self._kept |= {change.path for change in changes}

    def _wait(self, error: Exception) -> None:
        """Wait for what passes; another's commit has passed already. Raises all else."""
        from huggingface_hub.errors import HfHubHTTPError

        self._tried += 1
        if isinstance(error, HfHubHTTPError) and error.response.status_code == 412 and self._tried < _CONFLICTS:
            self._say(f"{self._hub.url(self._name)}: another has pushed in between; comparing again")
        else:
            self._hub.wait(error, self._tried - 1)

    def _pin(self) -> str | None:
        """Let the tasks of registry.json be those of a commit that has all the files, and say which."""
        content, url = self._local.registry, self._hub.url(self._name)
        if content is None:
            return None
        content = registry.unpinned(content, url, registry.pins(content, url))  # where it is a clone's
        there = self._content(registry.FILE)
        for commit in registry.pins(there, url) if there is not None else ():
            same = registry.pinned(content, url, commit) == there
            if same and self._hub.holds_same_tasks(self._name, content, commit, self._head):
                return commit
        files = self._head
        self._commit(
            [_Change(registry.FILE, registry.pinned(content, url, files))], f"Pin {registry.FILE} to {files[:12]}"
        )
        return files


def _order(change: _Change) -> tuple[int, str]:
    return _LAST.index(change.path) + 1 if change.path in _LAST else 0, change.path


def _is_content(content: bytes, remote: RemoteFile) -> bool:
    if remote.lfs is not None:
        return hashlib.sha256(content).hexdigest() == remote.lfs
    return git_blob(content) == remote.blob


def _batches(changes: list[_Change], root: Path) -> Iterator[list[_Change]]:
    """`changes` in commits of a size that the Hub takes."""
    batch: list[_Change] = []
    size = 0
    for change in changes:
        more = 0 if change.is_deleted else len(change.content or b"") or (root / change.path).stat().st_size
        more = more if more <= _LARGEST_REGULAR else 0
        if batch and (len(batch) == FILES or size + more > BYTES):
            yield batch
            batch, size = [], 0
        batch.append(change)
        size += more
    if batch:
        yield batch
