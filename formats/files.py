"""File trees that are carried without being read, and the one place that writes them.

A `Tree` is the list of what a folder holds, checked when it is made: nothing in it leaves the folder. A `Target` is a
folder that a conversion fills; it keeps the digest of what it wrote as it goes, so that no byte is read twice.
"""

import errno
import hashlib
import os
import shutil
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Literal

from envconvert.formats import losses
from envconvert.formats.losses import Kind

_CHUNK = 1 << 20


class UnsafeTreeError(Exception):
    """A folder holds something that is not carried: `kind` and `values` make the loss, `path` is where in it."""

    def __init__(self, kind: Kind, path: str, **values: object) -> None:
        super().__init__(f"{path}: {kind.code}")
        self.kind = kind
        self.path = path
        self.values = values


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, folder or link, by its path below the tree's root, with `/`. Bytes that are no UTF-8 are surrogates."""

    path: str
    kind: Literal["file", "folder", "link"]
    target: str = ""
    """Where a link leads, as it says itself."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A folder on disk and everything below it, sorted by path as bytes, a folder before what it holds."""

    root: Path
    entries: tuple[Entry, ...] = field(repr=False)

    def below(self, folder: str) -> "Tree | None":
        """The tree at `folder`, which may be a link to one; None where there is no such folder."""
        if self.holds(folder, "link"):
            real = os.path.relpath(os.path.realpath(self.root / folder), os.path.realpath(self.root))
            inner = self.below(real)
            return inner and Tree(self.root / folder, inner.entries)
        prefix = f"{folder}/"
        inside = tuple(replace(e, path=e.path[len(prefix) :]) for e in self.entries if e.path.startswith(prefix))
        if not inside and not self.holds(folder, "folder"):
            return None
        return Tree(self.root / folder, inside)

    def holds(self, path: str, *kinds: str) -> bool:
        """Whether `path` is here; with `kinds`, only as one of these."""
        return any(e.path == path and (not kinds or e.kind in kinds) for e in self.entries)

    def files(self) -> Iterator[str]:
        """Paths of the files and links."""
        return (e.path for e in self.entries if e.kind != "folder")


def walk(root: Path) -> Tree:
    """The tree at `root`.

    Raises `UnsafeTreeError` for a link out of the folder, for links to folders in which one can go round for ever, for
    anything that is no file, folder or link, and for two names in one folder that differ only in case or Unicode form.
    """
    entries: list[Entry] = []
    pending = [""]
    while pending:
        folder = pending.pop()
        seen: dict[str, str] = {}
        with os.scandir(f"{root}/{folder}") as found:
            for item in found:
                path = f"{folder}/{item.name}" if folder else item.name
                other = seen.setdefault(folded(item.name), path)
                if other != path:
                    raise UnsafeTreeError(losses.PATH_CLASH, max(other, path), value=min(other, path))
                if item.is_symlink():
                    entries.append(Entry(path, "link", os.readlink(item.path)))
                elif item.is_dir(follow_symlinks=False):
                    entries.append(Entry(path, "folder"))
                    pending.append(path)
                elif item.is_file(follow_symlinks=False):
                    entries.append(Entry(path, "file"))
                else:
                    raise UnsafeTreeError(losses.FILE_SPECIAL, path, value=_special(item))
    entries.sort(key=lambda entry: os.fsencode(entry.path))
    links = [entry for entry in entries if entry.kind == "link"]
    if links:
        _check_links(str(root), links, [entry.path for entry in entries if entry.kind == "folder"])
    return Tree(root, tuple(entries))


def _check_links(root: str, links: list[Entry], folders: list[str]) -> None:
    real_root = os.path.realpath(root)
    leads: dict[str, list[tuple[str, Entry | None]]] = {}  # by folder: the folders one can go to, and by which link
    for path in folders:
        leads.setdefault(os.path.dirname(path), []).append((path, None))
    for link in links:
        real = os.path.realpath(f"{root}/{link.path}")
        if os.path.isabs(link.target) or not _inside(real, real_root):
            raise UnsafeTreeError(losses.LINK_OUTSIDE, link.path, value=link.target)
        if os.path.isdir(real):
            place = "" if real == real_root else os.path.relpath(real, real_root)
            leads.setdefault(os.path.dirname(link.path), []).append((place, link))
    if round_trip := _round_trip(leads):
        raise UnsafeTreeError(losses.LINK_CYCLE, round_trip.path, value=round_trip.target)


def _round_trip(leads: dict[str, list[tuple[str, Entry | None]]]) -> Entry | None:
    """A link on a way that leads from a folder back to it; None where every way ends."""
    done: set[str] = set()
    way: list[tuple[str, Iterator[tuple[str, Entry | None]]]] = [("", iter(leads.get("", ())))]
    links: list[Entry | None] = [None]
    while way:
        folder, onward = way[-1]
        step = next(onward, None)
        if step is None:
            done.add(folder)
            way.pop()
            links.pop()
            continue
        place, link = step
        on_way = [there for there, _ in way]
        if place in on_way:
            return next(found for found in [link, *reversed(links)] if found is not None)
        if place not in done:
            way.append((place, iter(leads.get(place, ()))))
            links.append(link)
    return None


def folded(name: str) -> str:
    """What two names have in common that a file system without case or Unicode forms cannot tell apart."""
    return name if name.isascii() and name.islower() else unicodedata.normalize("NFC", name).casefold()


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _special(item: os.DirEntry[str]) -> str:
    mode = item.stat(follow_symlinks=False).st_mode
    names = {stat.S_IFIFO: "named pipe", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}
    return names.get(stat.S_IFMT(mode), "special file")


class Digest:
    """SHA-256 over the sorted lines `path NUL mode NUL sha256`.

    `mode` is octal with the file type (100644, 120777 for a link, 40755 for a folder that holds nothing); a link's
    sha256 is that of its target's text, an empty folder's that of nothing.
    """

    def __init__(self) -> None:
        self._lines: list[bytes] = []

    def add(self, path: str, mode: int, sha256: str) -> None:
        """Count one file, link or empty folder in."""
        self._lines.append(b"%s\0%o\0%s\n" % (os.fsencode(path), mode, sha256.encode()))

    def include(self, folder: str, other: "Digest") -> None:
        """Count in what `other` counted, as standing below `folder`."""
        prefix = os.fsencode(f"{folder}/")
        self._lines.extend(prefix + line for line in other._lines)

    def __str__(self) -> str:
        whole = hashlib.sha256()
        for line in sorted(self._lines):
            whole.update(line)
        return f"sha256:{whole.hexdigest()}"


_NOTHING = hashlib.sha256().hexdigest()


class Target:
    """A folder that a conversion fills.

    `written` is the digest of everything in it, `carried` that of what was copied from a source, by its path there.
    Paths are relative, with `/`; a path that would leave the folder is a fault in the caller.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.written = Digest()
        self.carried = Digest()
        _make_folder(root)

    @contextmanager
    def folder(self, path: str, source: str = "") -> Iterator["Target"]:
        """A target for the folder `path`, all or nothing: what raises inside leaves neither a file nor a digest.

        `source` is where the folder stands in the source.
        """
        place = self._place(path)
        inner = Target(place)
        try:
            yield inner
        except BaseException:
            shutil.rmtree(place)
            raise
        self.written.include(path, inner.written)
        self.carried.include(source or path, inner.carried)

    def write(self, path: str, data: str | bytes, mode: int = 0o644) -> None:
        """Write a file of our own."""
        content = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
        place = self._place(path)
        _make_folder(place.parent)
        with open(place, "xb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
        self.written.add(path, stat.S_IFREG | mode, hashlib.sha256(content).hexdigest())

    def copy(self, tree: Tree, into: str = "") -> None:
        """Carry `tree` to the folder `into`: bytes, permission bits, links and empty folders, owners and times not.

        Raises `UnsafeTreeError` where a file cannot be read, and where the tree changed since it was walked: nothing is
        read through a link that was not there then.
        """
        base = self._place(into) if into else self.root
        _make_folder(base)
        prefix = f"{into}/" if into else ""
        inside: dict[str, list[Entry]] = {"": []}  # by folder, parents first
        for entry in tree.entries:
            inside[entry.path.rpartition("/")[0]].append(entry)
            if entry.kind == "folder":
                inside[entry.path] = []
        modes: list[tuple[str, int]] = []
        for folder, entries in inside.items():
            place = f"{base}/{folder}" if folder else str(base)
            with _opened_folder(tree.root, folder) as (descriptor, mode):
                if folder:
                    os.mkdir(place)
                modes.append((place, mode))
                if folder and not entries:
                    self._count(prefix + folder, mode, _NOTHING)
                for entry in entries:
                    if entry.kind != "folder":
                        self._count(prefix + entry.path, *_copy_entry(descriptor, entry, f"{base}/{entry.path}"))
        for place, mode in reversed(modes):  # last, since a folder may forbid writing into it
            os.chmod(place, stat.S_IMODE(mode))

    def _count(self, path: str, mode: int, sha256: str) -> None:
        self.written.add(path, mode, sha256)
        self.carried.add(path, mode, sha256)

    def _place(self, path: str) -> Path:
        parts = PurePosixPath(path).parts
        if not parts or parts[0] == "/" or ".." in parts:
            raise ValueError(f"{path!r} leaves the target")
        return self.root / path


def _make_folder(place: Path) -> None:
    """Make a folder and those above it, with the same mode whatever the umask."""
    if not place.exists():
        _make_folder(place.parent)
        place.mkdir()
        place.chmod(0o755)


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Turn what the source's file system says into a loss at `path`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise UnsafeTreeError(losses.CHANGED, path, value="link") from None
        if error.errno == errno.ENOENT:
            raise UnsafeTreeError(losses.CHANGED, path, value="missing file") from None
        raise UnsafeTreeError(losses.UNREADABLE, path, value=error.strerror) from None


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@contextmanager
def _opened_folder(root: Path, folder: str) -> Iterator[tuple[int, int]]:
    """The descriptor and the mode of `folder` below `root`, reached through no link."""
    with _reading(folder):
        descriptor = os.open(root, _FOLDER)
    try:
        for name in folder.split("/") if folder else ():
            with _reading(folder):
                inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor, os.fstat(descriptor).st_mode
    finally:
        os.close(descriptor)


def _copy_entry(folder: int, entry: Entry, place: str) -> tuple[int, str]:
    """Copy a file or link from the open `folder` to `place`; its mode, and the SHA-256 of its bytes or target."""
    name = entry.path.rpartition("/")[2]
    if entry.kind == "link":
        with _reading(entry.path):
            target = os.readlink(name, dir_fd=folder)
        if target != entry.target:
            raise UnsafeTreeError(losses.CHANGED, entry.path, value="link to another place")
        os.symlink(target, place)
        return 0o120777, hashlib.sha256(os.fsencode(target)).hexdigest()
    with _reading(entry.path):
        # not blocking: a file that became a pipe has no writer
        source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        return _copy_file(source, entry.path, place)
    finally:
        os.close(source)


def _copy_file(source: int, path: str, place: str) -> tuple[int, str]:
    mode = os.fstat(source).st_mode
    if not stat.S_ISREG(mode):
        raise UnsafeTreeError(losses.CHANGED, path, value="special file")
    whole = hashlib.sha256()
    target = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        while chunk := _read(source, path):
            whole.update(chunk)
            view = memoryview(chunk)
            while view:
                view = view[os.write(target, view) :]
        os.fchmod(target, stat.S_IMODE(mode))
    finally:
        os.close(target)
    return mode, whole.hexdigest()


def _read(source: int, path: str) -> bytes:
    with _reading(path):
        return os.read(source, _CHUNK)


class UnreadableSourceError(Exception):
    """A source, as a whole, cannot be read: where, and why, with what to do."""

    def __init__(self, source: str | Path, reason: str) -> None:
        super().__init__(f"{source}: {reason}")
