"""File trees that are carried without being read, and the one place that writes them.

A `Tree` is the list of what a folder holds, checked when it is made: nothing in it leaves the folder. A `Target` is a
folder that a conversion fills; it keeps the digest of what it wrote as it goes, so that no byte is read twice.
"""

import hashlib
import os
import shutil
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class Tree:
    """A folder on disk and everything below it, sorted by path as bytes, a folder before what it holds."""

    root: Path
    entries: tuple[Entry, ...] = field(repr=False)

    def below(self, folder: str) -> "Tree | None":
        """The tree at `folder`; None where there is no such folder."""
        prefix = f"{folder}/"
        inside = tuple(Entry(e.path[len(prefix) :], e.kind) for e in self.entries if e.path.startswith(prefix))
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

    Raises `UnsafeTreeError` for a link out of the folder or to a folder around itself, for anything that is no file,
    folder or link, and for two names in one folder that differ only in case or Unicode form.
    """
    entries: list[Entry] = []
    real_root: str | None = None
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
                    real_root = real_root or os.path.realpath(root)
                    _check_link(item.path, path, real_root)
                    entries.append(Entry(path, "link"))
                elif item.is_dir(follow_symlinks=False):
                    entries.append(Entry(path, "folder"))
                    pending.append(path)
                elif item.is_file(follow_symlinks=False):
                    entries.append(Entry(path, "file"))
                else:
                    raise UnsafeTreeError(losses.FILE_SPECIAL, path, value=_special(item))
    entries.sort(key=lambda entry: os.fsencode(entry.path))
    return Tree(root, tuple(entries))


def folded(name: str) -> str:
    """What two names have in common that a file system without case or Unicode forms cannot tell apart."""
    return name if name.isascii() and name.islower() else unicodedata.normalize("NFC", name).casefold()


def _check_link(on_disk: str, path: str, real_root: str) -> None:
    target = os.readlink(on_disk)
    real = os.path.realpath(on_disk)
    if os.path.isabs(target) or not _inside(real, real_root):
        raise UnsafeTreeError(losses.LINK_OUTSIDE, path, value=target)
    if os.path.isdir(real) and _inside(os.path.realpath(os.path.dirname(on_disk)), real):
        raise UnsafeTreeError(losses.LINK_CYCLE, path, value=target)


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
        root.mkdir(parents=True, exist_ok=True)

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
        place.parent.mkdir(parents=True, exist_ok=True)
        with open(place, "xb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
        self.written.add(path, stat.S_IFREG | mode, hashlib.sha256(content).hexdigest())

    def copy(self, tree: Tree, into: str = "") -> None:
        """Carry `tree` to the folder `into`: bytes, permission bits, links and empty folders, owners and times not.

        Raises `OSError` where a file cannot be read, and `UnsafeTreeError` where the tree changed since it was walked.
        """
        base = self._place(into) if into else self.root
        base.mkdir(parents=True, exist_ok=True)
        prefix = f"{into}/" if into else ""
        modes = [(str(base), os.stat(tree.root).st_mode)]
        holders = {parent for entry in tree.entries if (parent := entry.path.rpartition("/")[0])}
        for entry in tree.entries:
            origin, place = f"{tree.root}/{entry.path}", f"{base}/{entry.path}"
            if entry.kind == "file":
                mode, sha256 = _copy_file(origin, place, entry.path)
            elif entry.kind == "link":
                link = os.readlink(origin)
                os.symlink(link, place)
                mode, sha256 = 0o120777, hashlib.sha256(os.fsencode(link)).hexdigest()
            else:
                mode, sha256 = os.lstat(origin).st_mode, _NOTHING
                os.mkdir(place)
                modes.append((place, mode))
                if entry.path in holders:
                    continue
            self.written.add(f"{prefix}{entry.path}", mode, sha256)
            self.carried.add(f"{prefix}{entry.path}", mode, sha256)
        for place, mode in reversed(modes):  # last, since a folder may forbid writing into it
            os.chmod(place, stat.S_IMODE(mode))

    def _place(self, path: str) -> Path:
        parts = PurePosixPath(path).parts
        if not parts or parts[0] == "/" or ".." in parts:
            raise ValueError(f"{path!r} leaves the target")
        return self.root / path


def _copy_file(origin: str, place: str, path: str) -> tuple[int, str]:
    whole = hashlib.sha256()
    source = os.open(origin, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(source).st_mode
        if not stat.S_ISREG(mode):
            raise UnsafeTreeError(losses.FILE_SPECIAL, path, value="file that changed while it was read")
        target = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            while chunk := os.read(source, _CHUNK):
                whole.update(chunk)
                view = memoryview(chunk)
                while view:
                    view = view[os.write(target, view) :]
            os.fchmod(target, stat.S_IMODE(mode))
        finally:
            os.close(target)
    finally:
        os.close(source)
    return mode, whole.hexdigest()


class UnreadableSourceError(Exception):
    """A source, as a whole, cannot be read: where, and why, with what to do."""

    def __init__(self, source: str | Path, reason: str) -> None:
        super().__init__(f"{source}: {reason}")
