"""Unpacks the tar archive of one task, as published in Parquet files, into an empty folder.

An archive is hostile until it is unpacked: nothing is written outside of the folder or through a link, and what is too
large is given up before it fills the disk or the memory. Links are made as they are; walking the folder checks them.
"""

import errno
import gzip
import io
import os
import posixpath
import struct
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from typing import IO, Literal, cast

from envconvert.formats import losses
from envconvert.formats.files import UnsafeTreeError

LARGEST = 2 << 30
"""Bytes that one task may unpack to. The largest of those published by 2026 has some hundred MB, most under one."""
MOST_MEMBERS = 100_000
"""What one task may hold. A repository in a build context has some ten thousand files."""
_PIECE = 1 << 20
_IN_MEMORY = 16 << 20  # most tasks; what is larger, once unpacked, waits on disk


def unpack(content: bytes, folder: str) -> None:
    """Unpack `content`, a tar or tar.gz, into the empty `folder`. Raises `UnsafeTreeError`."""
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as plain:
        try:
            for piece in _pieces(content):
                plain.write(piece)
                if plain.tell() > LARGEST:
                    raise UnsafeTreeError(losses.ARCHIVE_SIZE, ".", value=f"{LARGEST} bytes")
            plain.seek(0)
            # mode r: seeks, and a stream that is compressed would begin anew each time
            with tarfile.open(fileobj=cast(IO[bytes], _Guarded(plain)), mode="r:") as archive:
                _Folder(folder).fill(archive)
                plain.seek(archive.offset)
            if plain.read(tarfile.BLOCKSIZE).strip(b"\0"):
                raise ValueError(f"it is damaged at byte {archive.offset}")  # where tarfile just stops
        except (
            tarfile.TarError,
            EOFError,
            zlib.error,
            ValueError,
            LookupError,
            ArithmeticError,
            struct.error,
        ) as error:
            raise UnsafeTreeError(losses.ARCHIVE_INVALID, ".", value=str(error) or type(error).__name__) from None


def _pieces(content: bytes) -> Iterator[bytes]:
    if not content.startswith(b"\x1f\x8b"):
        yield content
        return
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
        try:
            while piece := packed.read(_PIECE):
                yield piece
        except gzip.BadGzipFile as error:
            raise ValueError(str(error)) from None


class _Guarded:
    """A file of which no more than `_PIECE` is read at once: what tarfile holds in memory of a header is no longer."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek = file.seek
        self.tell = file.tell

    def read(self, size: int) -> bytes:
        if size > _PIECE:
            raise ValueError(f"a header of {size} bytes")
        return self._file.read(size)


class _Folder:
    """The folder that is filled. What stands in it is remembered, so that nothing is written through a link."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._kinds: dict[str, Literal["file", "folder", "link"]] = {"": "folder"}
        self._modes: dict[str, int] = {}
        self._size = 0

    def fill(self, archive: tarfile.TarFile) -> None:
        for number, member in enumerate(archive, 1):
            archive.members.clear()  # type: ignore[attr-defined]  # else it keeps them all
            path = _inside(member.name)
            self._size += member.size if member.isreg() else 0
            if number > MOST_MEMBERS or self._size > LARGEST:
                limit = f"{MOST_MEMBERS} members" if number > MOST_MEMBERS else f"{LARGEST} bytes"
                raise UnsafeTreeError(losses.ARCHIVE_SIZE, path or ".", value=limit)
            try:
                self._add(archive, member, path)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise  # of this machine, not of the task
                raise UnsafeTreeError(losses.UNREADABLE, path, value=error.strerror) from None
        for path, mode in reversed(self._modes.items()):  # last, since a folder may forbid writing into it
            os.chmod(f"{self._place}/{path}", mode)

    def _add(self, archive: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
        if member.isdir():
            self._make_folder(path)
            self._modes[path] = member.mode & 0o7777
            return
        if path in self._kinds:
            raise UnsafeTreeError(losses.ARCHIVE_REPEATED, path or ".", value=path)
        self._make_folder(posixpath.dirname(path))
        place = f"{self._place}/{path}"
        if member.issym():
            os.symlink(member.linkname, place)
            self._kinds[path] = "link"
        elif member.islnk():
            target = _inside(member.linkname)
            if self._kinds.get(target) != "file":
                raise UnsafeTreeError(losses.ARCHIVE_LINK, path, value=member.linkname)
            os.link(f"{self._place}/{target}", place)
            self._kinds[path] = "file"
        elif member.isreg():
            _write(archive, member, place)
            self._kinds[path] = "file"
        else:
            kind = "named pipe" if member.isfifo() else "device" if member.isdev() else "special file"
            raise UnsafeTreeError(losses.FILE_SPECIAL, path, value=kind)

    def _make_folder(self, path: str) -> None:
        kind = self._kinds.get(path)
        if kind is None:
            self._make_folder(posixpath.dirname(path))
            os.mkdir(f"{self._place}/{path}")
            self._kinds[path] = "folder"
            self._modes[path] = 0o755
        elif kind != "folder":
            raise UnsafeTreeError(losses.ARCHIVE_REPEATED, path, value=path)


def _inside(name: str) -> str:
    """`name` as a path below the task folder. Raises `UnsafeTreeError` where it leads out."""
    if name.startswith("/") or ".." in name.split("/") or "\0" in name:
        raise UnsafeTreeError(losses.ARCHIVE_PATH, name, value=name)
    path = posixpath.normpath(name)
    return "" if path == "." else path


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, place: str) -> None:
    source = archive.extractfile(member)
    assert source is not None, "a regular file"
    with open(place, "xb") as file:
        while piece := source.read(_PIECE):
            file.write(piece)
        os.fchmod(file.fileno(), member.mode & 0o7777)
