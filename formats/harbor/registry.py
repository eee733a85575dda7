"""registry.json: named sets of tasks, each in versions, as `harbor run -d NAME[@VERSION]` takes them from a file.

A task's path is taken as relative to the folder of the file: that of the repository, where `harbor run --repo` looks.
"""

import json
import os
import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from packaging.version import InvalidVersion, Version

from envconvert.formats import losses
from envconvert.formats.files import UnreadableSourceError
from envconvert.formats.harbor.finding import FoundTask
from envconvert.formats.losses import Loss

FILE = "registry.json"
HEAD = "head"
"""The version of a dataset that has none."""
_NAME = "harbor"

_BEGINNING = 1 << 16


class TaskEntry(msgspec.Struct, kw_only=True):
    """An entry of a dataset's `tasks`. Harbor ignores `name`: a task is called as its folder."""

    name: str
    path: str
    git_url: str | None = None
    git_commit_id: str | None = None


class Dataset(msgspec.Struct, kw_only=True):
    """An entry of registry.json."""

    name: str
    version: str
    description: str
    tasks: list[TaskEntry]
    metrics: list[dict[str, Any]] = []

    @property
    def title(self) -> str:
        """NAME@VERSION"""
        return f"{self.name}@{self.version}"


def is_registry(source: Path) -> bool:
    """Whether `source` is a registry file itself, whatever it is called."""
    return source.suffix == ".json" and source.is_file()


def looks_like_one(source: Path) -> bool:
    """Whether `source` is a registry by its name, or begins as one; other files of JSON are tables."""
    if not is_registry(source):
        return False
    with open(source, "rb") as file:
        return source.name == FILE or b'"tasks"' in file.read(_BEGINNING)


def load(source: Path) -> tuple[Path, list[Dataset]]:
    """The registry that `source` is or holds, and its datasets. Raises `UnreadableSourceError`."""
    file = source if is_registry(source) else source / FILE
    try:
        return file, msgspec.json.decode(file.read_bytes(), type=list[Dataset])
    except FileNotFoundError:
        reason = f"--dataset names a dataset of {FILE}, and there is none; name the folder that holds it"
        raise UnreadableSourceError(source, reason) from None
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UnreadableSourceError(file, f"it is no registry as Harbor reads it: {why}; mend it there") from None


def choose(file: Path, datasets: list[Dataset], wanted: str | None) -> Dataset:
    """The dataset NAME[@VERSION]; where none is `wanted`, the only one. Raises `UnreadableSourceError`."""
    titles = ", ".join(dataset.title for dataset in datasets) or "none"
    if wanted is None:
        if len(datasets) != 1:
            raise UnreadableSourceError(file, f"choose one of its datasets with --dataset; there are {titles}")
        return datasets[0]
    name, _, version = wanted.partition("@")
    versions = {dataset.version: dataset for dataset in datasets if dataset.name == name}
    if not versions or (version and version not in versions):
        raise UnreadableSourceError(file, f"it has no dataset {wanted!r}; there are {titles}")
    return versions[version or latest(list(versions))]


def latest(versions: list[str]) -> str:
    """The version that Harbor takes where none is said: head, else the highest of PEP 440, else the last as text."""
    if HEAD in versions:
        return HEAD
    return max(versions, key=_rank)


def _rank(version: str) -> tuple[bool, Version, str]:
    try:
        return True, Version(version), ""
    except InvalidVersion:
        return False, Version("0"), version


def found_tasks(file: Path, dataset: Dataset) -> list[FoundTask]:
    """The tasks of `dataset` in its order. Raises `UnreadableSourceError` where one is listed twice."""
    here = os.path.realpath(file.parent)
    found: dict[str, FoundTask] = {}
    for entry in dataset.tasks:
        place = posixpath.normpath(entry.path)
        if place in found and entry.git_url is None:
            raise UnreadableSourceError(file, f"{dataset.title} lists {entry.path!r} twice; remove one of the two")
        id = posixpath.basename(place)
        key = place if entry.git_url is None else f"{entry.git_url} {entry.git_commit_id} {place}"
        found[key] = FoundTask(id, here, place, _why_not(id, here, entry))
    return list(found.values())


def _why_not(id: str, here: str, entry: TaskEntry) -> Loss | None:
    """Why the task of `entry` is not read; None where it may be tried."""
    if entry.git_url is not None:
        commit = f" at {entry.git_commit_id}" if entry.git_commit_id else ""
        return losses.REGISTRY_REMOTE.loss(
            task=id, format=_NAME, field=entry.path, value=entry.git_url, url=entry.git_url, commit=commit
        )
    real = os.path.realpath(f"{here}/{entry.path}")
    if os.path.isabs(entry.path) or ".." in entry.path.split("/") or not real.startswith(f"{here.rstrip('/')}/"):
        return losses.REGISTRY_OUTSIDE.loss(task=id, format=_NAME, field="path", value=entry.path)
    return None


def notes(dataset: Dataset) -> list[Loss]:
    """What `dataset` says that a taskset does not hold."""
    found: list[Loss] = []
    if dataset.metrics:
        value = [metric.get("type") for metric in dataset.metrics]
        found.append(losses.METRICS_DROPPED.loss(task="", format=_NAME, field=f"{FILE}: metrics", value=value))
    if commits := sorted({entry.git_commit_id for entry in dataset.tasks if entry.git_commit_id and not entry.git_url}):
        loss = losses.REGISTRY_PINNED.loss(task="", format=_NAME, field=f"{FILE}: git_commit_id", value=commits)
        found.append(loss)
    return found


def sets(source: Path, found: list[FoundTask]) -> tuple[dict[str, tuple[str, ...]], list[Loss]]:
    """The ids of each dataset of the registry at `source` that `found` has; a note where it cannot be read."""
    if not (source / FILE).is_file():
        return {}, []
    try:
        _, datasets = load(source)
    except UnreadableSourceError as error:
        reason = str(error).removeprefix(f"{source / FILE}: ")
        return {}, [losses.REGISTRY_UNREADABLE.loss(task="", format=_NAME, field=FILE, value=reason)]
    ids = {item.place: item.id for item in found}
    return {dataset.title: _ids(dataset, ids) for dataset in datasets}, []


def _ids(dataset: Dataset, ids: dict[str, str]) -> tuple[str, ...]:
    places = (posixpath.normpath(entry.path) for entry in dataset.tasks if entry.git_url is None)
    return tuple(ids[place] for place in places if place in ids)


def pinned(content: bytes, url: str, commit: str) -> bytes:
    """The registry `content` with its own tasks as those of the git repository `url` at `commit`.

    A task of another repository stays as it is. Raises `ValueError` where it is no registry.
    """
    datasets = _decoded(content)
    for entry in _entries(datasets):
        if not entry.get("git_url"):
            entry |= {"git_url": url, "git_commit_id": commit}
    return encode(datasets).encode()


def unpinned(content: bytes, url: str, commits: Collection[str]) -> bytes:
    """The registry `content` with the tasks of the git repository `url` at one of `commits` as its own again."""
    datasets = _decoded(content)
    for entry in _entries(datasets):
        if entry.get("git_url") == url and entry.get("git_commit_id") in commits:
            del entry["git_url"], entry["git_commit_id"]
    return encode(datasets).encode()


def pins(content: bytes, url: str) -> set[str]:
    """The commits of the git repository `url` that the registry `content` names. Raises `ValueError`."""
    entries = _entries(_decoded(content))
    return {str(entry.get("git_commit_id")) for entry in entries if entry.get("git_url") == url}


def places(content: bytes) -> set[str]:
    """The paths of the tasks that the registry `content` lists. Raises `ValueError`."""
    return {posixpath.normpath(entry["path"]) for entry in _entries(_decoded(content))}


def _decoded(content: bytes) -> list[dict[str, Any]]:
    """The registry as it stands, keys that `Dataset` does not know included."""
    msgspec.json.decode(content, type=list[Dataset])
    datasets: list[dict[str, Any]] = json.loads(content)
    return datasets


def _entries(datasets: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for dataset in datasets:
        yield from dataset["tasks"]


def encode(datasets: Sequence[Mapping[str, Any]]) -> str:
    """The text of a registry."""
    return json.dumps(datasets, ensure_ascii=False, indent=2) + "\n"
