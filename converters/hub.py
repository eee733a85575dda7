"""The Hugging Face Hub: datasets there as sources, of which only what is needed is brought to this machine.

In the cache, for each commit of a dataset, stand `files/` with what was fetched of it, and two trees of the same shape
in which files that are not needed are empty: `ids/` tells which tasks there are, `descriptions/` what they are like.
"""

import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from envconvert.formats.files import UnreadableSourceError
from envconvert.formats.harbor import registry
from envconvert.formats.losses import printable

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoFile

T = TypeVar("T")
Contents = Literal["ids", "descriptions", "files"]
"""How much of the tasks of a dataset is fetched: nothing, the files that say what they are like, or all files."""

PUSHED = "envconvert.pushed.json"
"""The file on the Hub that says what a push wrote there."""
NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")

_ADDRESS = re.compile(r"hf://datasets/(?P<name>[^/@]+/[^/@]+)(@(?P<revision>[^/]+))?(/(?P<path>.+))?")
_TASK = ("task.toml", "task.yaml")
_DESCRIBING = {
    *("task.toml", "instruction.md", "test.sh", "test.bat", "solve.sh", "solve.bat"),
    *("task.yaml", "Dockerfile", "docker-compose.yaml", "run-tests.sh", "solution.sh"),  # Terminal-Bench
}
"""Names of the files whose contents a reader looks at."""
_READ_BESIDE = (".json", ".jsonl", ".toml", ".yaml")
"""Files beside the tasks that are fetched even where they are so large that the Hub has them in LFS."""

_AT_ONCE = 8
_PAUSES = (1, 2, 4, 8, 16, 32)
_LONGEST_PAUSE = 2 * 3600  # the Hub counts commits by the hour
_PASSING = (408, 429, 500, 502, 503, 504)
SIGN_IN = "sign in with `hf auth login`, or set HF_TOKEN"


class PushedFiles(msgspec.Struct, frozen=True, kw_only=True):
    """What a push wrote, by path, and what of it the Hub does not hold."""

    files: list[str] = []
    executable: list[str] = []
    """Those of them that are executable."""
    empty: list[str] = []
    """Folders that hold nothing, which git has none of."""


class Hub:
    """The Hub, asked with patience: what passes by itself, such as a broken connection, is asked for again."""

    def __init__(self, say: Callable[[str], None]) -> None:
        from huggingface_hub import HfApi
        from huggingface_hub.utils.tqdm import disable_progress_bars

        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # what it would warn of is an error here
        disable_progress_bars()
        self.api = HfApi()
        self._say = say
        self._answered = False

    def ask(self, step: Callable[[], T]) -> T:
        """What `step` returns. It may be called several times."""
        for tried in range(len(_PAUSES)):
            try:
                return self.once(step)
            except Exception as error:
                self.wait(error, tried)
        return self.once(step)

    def once(self, step: Callable[[], T]) -> T:
        """What `step` returns, asked for once."""
        try:
            found = step()
        except Exception as error:
            self._answered |= _status(error) is not None
            raise
        self._answered = True
        return found

    def wait(self, error: Exception, tried: int) -> None:
        """Wait as long as the Hub asks for, else the longer the more often it was `tried`; raises what does not pass.

        A Hub that was never reached is not waited for.
        """
        if tried >= len(_PAUSES) or not (self._answered and _passes(error)):
            raise error
        asked = _asked_pause(error)
        pause = _PAUSES[tried] if asked is None else asked
        if pause > _LONGEST_PAUSE:
            raise error
        self._say(f"the Hub: {first_line(error)}; trying again in {pause} s")
        time.sleep(pause)

    def entries(self, name: str, revision: str, path: str | None = None) -> dict[str, str]:
        """By name, the ids that git has for what stands in the folder `path` of a dataset, or at its root."""
        listed = partial(self.api.list_repo_tree, name, path, repo_type="dataset", revision=revision)
        found = self.ask(lambda: list(listed()))
        return {entry.path: str(getattr(entry, "tree_id", None) or getattr(entry, "blob_id", "")) for entry in found}

    def files(self, name: str, revision: str, path: str | None = None) -> dict[str, "RemoteFile"]:
        """The files of a dataset, or of a folder in it, by path."""
        from huggingface_hub.hf_api import RepoFile

        listed = partial(self.api.list_repo_tree, name, path, repo_type="dataset", revision=revision, recursive=True)
        return {
            entry.path: remote_file(entry) for entry in self.ask(lambda: list(listed())) if isinstance(entry, RepoFile)
        }

    def url(self, name: str) -> str:
        """Where people and git find the dataset."""
        return f"{self.api.endpoint}/datasets/{name}"

    def holds_same_tasks(self, name: str, content: bytes, one: str, other: str) -> bool:
        """Whether the tasks of the registry `content` are the same at two commits of a dataset."""
        from huggingface_hub.errors import RevisionNotFoundError

        try:
            here, there = (self.entries(name, revision) for revision in (one, other))
        except RevisionNotFoundError:
            return False
        tops = {place.partition("/")[0] for place in registry.places(content)}
        return all(top in here and here[top] == there.get(top) for top in tops)


class RemoteFile(msgspec.Struct, frozen=True, gc=False):
    """A file on the Hub: its size in bytes, git's id of what git holds, and the SHA-256 of what LFS holds."""

    size: int
    blob: str
    lfs: str | None


def remote_file(entry: "RepoFile") -> RemoteFile:
    """What the Hub's client says of a file, in our words."""
    return RemoteFile(entry.size, entry.blob_id, entry.lfs.sha256 if entry.lfs else None)


def _status(error: BaseException) -> int | None:
    """The HTTP status of the answer that `error` is about."""
    from huggingface_hub.errors import HfHubHTTPError

    return next((cause.response.status_code for cause in _causes(error) if isinstance(cause, HfHubHTTPError)), None)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _passes(error: Exception) -> bool:
    """Whether what went wrong may be gone after a while."""
    status = _status(error)
    if status is not None:
        return status in _PASSING
    # the HTTP client of huggingface_hub is httpx or httpx2, whichever its release takes; an error page is no JSON
    kinds = [kind.__name__ for cause in _causes(error) for kind in type(cause).__mro__]
    return "TransportError" in kinds or "JSONDecodeError" in kinds


def _asked_pause(error: Exception) -> int | None:
    """The seconds that the Hub asks to wait for."""
    from huggingface_hub.errors import HfHubHTTPError

    for cause in _causes(error):
        if isinstance(cause, HfHubHTTPError):
            if (value := cause.response.headers.get("Retry-After", "")).isdigit():
                return int(value)
            if match := re.search(r";\s*r=0\s*;\s*t=(\d+)", cause.response.headers.get("RateLimit", "")):
                return int(match[1])
            if match := re.search(r"retry this action in (\d+) (minute|hour)", str(cause)):
                return int(match[1]) * {"minute": 60, "hour": 3600}[match[2]] + 60
    return None


def first_line(error: BaseException) -> str:
    """What `error` says, without a token."""
    from huggingface_hub import get_token

    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = " ".join(lines[:2]) or type(error).__name__
    token = get_token()
    return said.replace(token, "<token>") if token else said


def reason(error: Exception, hub: Hub, name: str, revision: str | None = None) -> str:
    """Why the Hub did not do what it was asked for with a dataset, and what helps."""
    from huggingface_hub import get_token
    from huggingface_hub.errors import (
        DisabledRepoError,
        GatedRepoError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    status = _status(error)
    if isinstance(error, GatedRepoError):
        ask = f"ask for access at {hub.url(name)}"
        return f"the dataset is gated: {ask}" + ("" if get_token() else f", and {SIGN_IN}")
    if isinstance(error, DisabledRepoError):
        return "the Hub has disabled the dataset"
    if isinstance(error, RevisionNotFoundError):
        return f"the dataset has no revision {revision or 'main'!r}; {hub.url(name)}/commits lists what it has"
    if status == 401 and "Invalid credentials" in str(error):
        return f"the Hub does not know the token that is used; {SIGN_IN}"
    if isinstance(error, RepositoryNotFoundError) or status in (401, 404):
        if get_token() is None:
            return f"the Hub has no such dataset, or a private one; if it is private, {SIGN_IN}"
        return "the Hub has no such dataset, or a private one that the account of the token used may not read"
    if status == 403:
        return f"the token used may not do this; the Hub says: {first_line(error)}"
    return f"the Hub did not answer as it should: {first_line(error)}"


def local_copy(
    source: str | Path, ids_of: Callable[[Path], Collection[str]], contents: Contents = "files"
) -> tuple[Path, str, str | None]:
    """The folder or file of `source` on this machine, its address, and the commit where it is on the Hub.

    A path that exists is taken as it is. Of a dataset on the Hub, what stands beside its tasks is fetched, and
    `contents` of those tasks whose ids `ids_of` names; it is given a folder that tells which there are. Raises
    `UnreadableSourceError`.
    """
    if isinstance(source, str) and (match := _ADDRESS.fullmatch(source)):
        return _fetched(source, match["name"], match["revision"], match["path"], ids_of, contents)
    place = Path(source)
    if place.exists():
        return place.resolve(), printable(place.resolve().name), None
    if isinstance(source, str) and NAME.fullmatch(source):
        return _fetched(f"hf://datasets/{source}", source, None, None, ids_of, contents)
    raise UnreadableSourceError(
        source, "there is no such folder; a Hub repository is ORG/NAME or hf://datasets/ORG/NAME"
    )


def _fetched(
    address: str,
    name: str,
    revision: str | None,
    path: str | None,
    ids_of: Callable[[Path], Collection[str]],
    contents: Contents,
) -> tuple[Path, str, str | None]:
    path = path and path.strip("/")
    if path and ".." in path.split("/"):
        raise UnreadableSourceError(address, "a path in a dataset has no `..`")
    hub = Hub(lambda line: None)
    with _readable(address, hub, name, revision):
        commit = hub.ask(lambda: hub.api.dataset_info(name, revision=revision)).sha or "main"
        dataset = _Dataset(hub, name, commit, path or "")
        if path and not dataset.paths:
            raise UnreadableSourceError(address, f"the dataset has no {path!r} at {commit}")
        dataset.fetch(dataset.beside)
        if not dataset.tasks:
            return dataset.files / dataset.path, address, commit
        outline = dataset.outline()
    with at_address(address, outline / dataset.path):
        ids = set(ids_of(outline / dataset.path))
    with _readable(address, hub, name, revision):
        return dataset.with_tasks(ids, contents) / dataset.path, address, commit


@contextmanager
def at_address(address: str, folder: Path) -> Iterator[None]:
    """Let what is unreadable in `folder`, a copy of what `address` names, be so at the address."""
    try:
        yield
    except UnreadableSourceError as error:
        raise UnreadableSourceError(address, str(error).removeprefix(str(folder)).lstrip("/: ")) from None


@contextmanager
def _readable(address: str, hub: Hub, name: str, revision: str | None) -> Iterator[None]:
    try:
        yield
    except UnreadableSourceError:
        raise
    except OSError as error:
        if _status(error) is None and error.filename is not None:  # it is about a file here, and not the Hub's answer
            raise
        raise UnreadableSourceError(address, reason(error, hub, name, revision)) from None
    except Exception as error:  # the HTTP client's own exceptions come through, whichever client that is
        raise UnreadableSourceError(address, reason(error, hub, name, revision)) from None


class _Dataset:
    """A dataset at one commit, and what of it is on this machine. `path` is the part of it that is the source."""

    def __init__(self, hub: Hub, name: str, commit: str, path: str) -> None:
        from envconvert.cache import cache_folder

        self._hub = hub
        self._name = name
        self._commit = commit
        self.path = path
        folder = cache_folder("hub", name.replace("/", "--"), commit)
        base = name.rpartition("/")[2]  # a reader calls what it finds after its folder
        self.files = folder / "files" / base
        self._outline = folder / "ids" / base
        self._descriptions = folder / "descriptions" / base
        self._downloads = folder / "downloads"
        for place in (self.files, self._outline, self._descriptions):
            place.mkdir(parents=True, exist_ok=True)

    @cached_property
    def paths(self) -> dict[str, RemoteFile]:
        """The files that belong to the source."""
        from huggingface_hub.hf_api import RepoFile

        if not self.path:
            return self._listed(None)
        known = partial(self._hub.api.get_paths_info, self._name, [self.path, PUSHED], repo_type="dataset")
        about = {entry.path: entry for entry in self._hub.ask(lambda: known(revision=self._commit))}
        if self.path not in about:
            return {}
        parent = self.path.rpartition("/")[0]
        if not isinstance(about[self.path], RepoFile):
            found = self._listed(self.path)
        elif self.path.endswith(".json"):  # a registry, whose tasks stand below its folder
            found = self._listed(parent or None)
        else:
            found = {path: file for path, file in self._listed(parent or None).items() if path == self.path}
        pushed = about.get(PUSHED)
        return found | ({PUSHED: remote_file(pushed)} if isinstance(pushed, RepoFile) else {})

    def _listed(self, folder: str | None) -> dict[str, RemoteFile]:
        found = self._hub.files(self._name, self._commit, folder)
        if odd := [path for path in found if path.startswith("/") or {"", ".", ".."} & set(path.split("/"))]:
            raise UnreadableSourceError(self._name, f"the Hub lists {odd[0]!r}, which is no path in a dataset")
        return found

    @cached_property
    def tasks(self) -> dict[str, list[str]]:
        """The files of each task by its folder."""
        folders = {path.rpartition("/")[0] for path in self.paths if path.rpartition("/")[2] in _TASK}
        found: dict[str, list[str]] = {}
        for path in self.paths:
            parts = path.split("/")
            above = ("/".join(parts[:depth]) for depth in range(len(parts)))
            if (folder := next((place for place in above if place in folders), None)) is not None:
                found.setdefault(folder, []).append(path)
        return found

    @cached_property
    def beside(self) -> list[str]:
        """The files outside of tasks that a reader may look at; where there are no task folders, all of them."""
        inside = {path for paths in self.tasks.values() for path in paths}
        return [
            path
            for path, file in self.paths.items()
            if path not in inside and (not self.tasks or file.lfs is None or path.endswith(_READ_BESIDE))
        ]

    @cached_property
    def _pushed(self) -> PushedFiles:
        """What the push that wrote the dataset says of it, if it was envconvert's."""
        try:
            return msgspec.json.decode((self.files / PUSHED).read_bytes(), type=PushedFiles)
        except (OSError, msgspec.DecodeError):
            return PushedFiles()

    def fetch(self, paths: Iterable[str]) -> None:
        """Bring `paths` to `files`, each whole or not at all; those that are there are not asked for again."""
        from huggingface_hub import hf_hub_download

        def bring(path: str) -> None:
            get = partial(hf_hub_download, self._name, path, repo_type="dataset", revision=self._commit)
            place = Path(self._hub.ask(lambda: get(local_dir=self._downloads)))
            self._put(path, place)

        missing = [path for path in paths if not (self.files / path).exists()]
        missing.sort(key=lambda path: path != PUSHED)  # it says how the others are put
        if missing[:1] == [PUSHED]:
            bring(missing.pop(0))
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            try:
                for _ in pool.map(bring, missing):
                    pass
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _put(self, path: str, download: Path) -> None:
        """Move a file to `files`, as it was before a push of envconvert changed what the Hub does not hold."""
        place = self.files / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if path == registry.FILE:
            download.write_bytes(self._without_pins(download.read_bytes()))
        download.chmod(0o755 if path != PUSHED and path in self._executable else 0o644)
        download.replace(place)

    @cached_property
    def _executable(self) -> frozenset[str]:
        return frozenset(self._pushed.executable)

    def _without_pins(self, content: bytes) -> bytes:
        """The registry `content`; tasks that it pins to a commit of this dataset are its own if they are the same."""
        url = self._hub.url(self._name)
        try:
            commits = registry.pins(content, url)
        except ValueError:
            return content
        same = {c for c in commits if self._hub.holds_same_tasks(self._name, content, c, self._commit)}
        return registry.unpinned(content, url, same) if same else content

    def outline(self) -> Path:
        """A tree that tells which tasks there are: what stands beside them, and empty files for what marks them."""
        self._copy(self.beside, self._outline)
        for folder, paths in self.tasks.items():
            start = len(folder) + 1 if folder else 0
            for path in paths:
                inner, _, rest = path[start:].partition("/")
                place = self._outline / folder / inner
                if rest:
                    place.mkdir(parents=True, exist_ok=True)
                else:
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.touch()
        return self._outline

    def with_tasks(self, ids: Collection[str], contents: Contents) -> Path:
        """A tree with `contents` of the tasks that `ids` name."""
        if contents == "ids":
            return self._outline
        wanted = [path for folder, paths in self.tasks.items() if _is_named(folder, ids) for path in paths]
        if contents == "files":
            self.fetch(wanted)
            self._make_empty_folders(self.files, wanted)
            return self.files
        described = [path for path in wanted if path.rpartition("/")[2] in _DESCRIBING]
        self.fetch(described)
        self._copy([*self.beside, *described], self._descriptions)
        for path in wanted:
            place = self._descriptions / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        self._make_empty_folders(self._descriptions, wanted)
        return self._descriptions

    def _copy(self, paths: Iterable[str], tree: Path) -> None:
        for path in paths:
            place = tree / path
            if not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                partial_copy = place.with_name(f"{place.name}.{os.getpid()}.partial")
                shutil.copy(self.files / path, partial_copy)
                partial_copy.replace(place)

    def _make_empty_folders(self, tree: Path, paths: Iterable[str]) -> None:
        """Those of the tasks whose files are `paths`."""
        wanted = set(paths)
        tasks = {folder for folder, inside in self.tasks.items() if inside[0] in wanted}
        for folder in self._pushed.empty:
            parts = folder.split("/")
            above = {"/".join(parts[:depth]) for depth in range(len(parts))}
            if not above.isdisjoint(tasks) and not {"", ".", ".."} & set(parts):
                (tree / folder).mkdir(parents=True, exist_ok=True)


def _is_named(folder: str, ids: Collection[str]) -> bool:
    """Whether an id is what a reader makes of `folder`: its path, or the end of it, with `/` as `--`."""
    parts = folder.split("/")
    return not folder or any("--".join(parts[start:]) in ids for start in range(len(parts)))
