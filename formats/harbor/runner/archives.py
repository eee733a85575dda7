"""Files on their way into a container and out of it, as tar archives that are never whole in memory."""

import logging
import tarfile
from pathlib import Path, PurePosixPath
from typing import IO

from .machine import Excluded

logger = logging.getLogger(__name__)


def pack(source: Path, target: str, excluded: Excluded, file: IO[bytes]) -> None:
    """Write to `file` what `Machine.put` copies, to be unpacked at the root of the container.

    At the root, since docker refuses a link that points out of the folder it unpacks into.
    """
    with tarfile.open(fileobj=file, mode="w|") as archive:
        _add(archive, source, PurePosixPath(target).relative_to("/"), excluded)


def _add(archive: tarfile.TarFile, source: Path, name: PurePosixPath, excluded: Excluded) -> None:
    if source.is_symlink() or not source.is_dir():
        archive.add(source, str(name), recursive=False, filter=_owned_by_root)
        return
    for entry in sorted(source.iterdir()):
        if excluded(entry):
            continue
        place = name / entry.name
        archive.add(entry, str(place), recursive=False, filter=_owned_by_root)
        if entry.is_dir() and not entry.is_symlink():
            _add(archive, entry, place, excluded)


def _owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def unpack(file: IO[bytes], target: Path, name: str | None) -> None:
    """Unpack what `Machine.take` copies into the folder `target`; `name` is what a single file is called there.

    Python's filter for archives that are not trusted leaves out what would lie elsewhere.

    Raises:
        tarfile.ReadError: it is no archive.
    """
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=file, mode="r|") as archive:
        for member in archive:
            found = member if name is None else member.replace(name=name, deep=False)
            try:
                archive.extract(found, target, filter="data")
            except tarfile.FilterError as error:
                logger.warning("%s is left out of an artifact: %s", member.name, error)
