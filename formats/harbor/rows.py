"""Parquet files of tasks: a row a task, `path` what it is called and `task_binary` its folder as tar or tar.gz.

The convention of the Hub, which Harbor itself does not read. Rows are read a few at a time.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from envconvert.formats import losses
from envconvert.formats.files import UnreadableSourceError, is_lfs_pointer
from envconvert.formats.harbor.finding import FoundTask
from envconvert.formats.losses import Loss

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

_NAME = "harbor"
_COLUMNS = {"path", "task_binary"}
_AT_ONCE = 8  # tasks: with some MB each, what one is read from is far below what a conversion may use
_LARGEST_GROUP = 2 << 30  # bytes: a group whose tasks were written as one page is held in memory
_SHARD = re.compile(r"(?P<split>.+?)-\d{5}-of-\d{5}(-[0-9a-f]+)?")
_SPLITS = {"train", "validation", "test"}  # file names that are splits for the Hub, without the number of a shard


class Row(msgspec.Struct, frozen=True, gc=False):
    """A task, where it stands in which file, and the split it belongs to; empty where none is said."""

    task: FoundTask
    file: str
    group: int
    number: int
    """In the group."""
    split: str


def files(source: Path) -> list[Path]:
    """The Parquet files that `source` is or holds, by path as bytes."""
    if source.is_file():
        return [source] if source.suffix == ".parquet" else []
    found = (path for path in source.rglob("*.parquet") if ".git" not in path.parts and path.is_file())
    return sorted(found, key=os.fsencode)


def holds_tasks(source: Path) -> bool:
    """Whether a file of `source` has the columns of tasks."""
    return any(_columns(file) >= _COLUMNS for file in files(source))


def find(source: Path) -> tuple[list[Row], list[Loss]]:
    """The rows of the files at `source`, in order, and what is noteworthy. Raises `UnreadableSourceError`."""
    rows: list[Row] = []
    notes: list[Loss] = []
    seen: dict[str, str] = {}
    for file in files(source):
        here = file.relative_to(source).as_posix() if source.is_dir() else file.name
        if not _columns(file) >= _COLUMNS:
            notes.append(losses.ROWS_SKIPPED.loss(task="", format=_NAME, field=here, value=sorted(_columns(file))))
            continue
        for path, group, number, split in _places(file):
            place = _place(path)
            id = place.replace("/", "--")
            where = seen.setdefault(place, f"{here}, row {len(rows)}")
            loss = None
            if where != f"{here}, row {len(rows)}":
                loss = losses.ID_CLASH.loss(task=id, format=_NAME, field="id", value=id, other=where)
            rows.append(Row(FoundTask(id, str(file), place, loss), str(file), group, number, split))
    return rows, notes


def contents(rows: list[Row]) -> Iterator[tuple[Row, bytes]]:
    """Each of `rows`, which are in the order of `find`, with its archive. Raises `UnreadableSourceError`."""
    wanted: dict[tuple[str, int], dict[int, Row]] = {}
    for row in rows:
        wanted.setdefault((row.file, row.group), {})[row.number] = row
    for (file, group), chosen in wanted.items():
        number = 0
        for batch in _batches(Path(file), group, ["task_binary"], _AT_ONCE):
            for value in batch.column(0):
                if number in chosen:
                    yield chosen[number], value.as_py() or b""
                number += 1


def _places(file: Path) -> Iterator[tuple[str, int, int, str]]:
    """Path, row group, number in the group and split of every row of `file`."""
    said = "split" in _columns(file)
    columns = ["path", "split"] if said else ["path"]
    for group in range(_opened(file).num_row_groups):
        number = 0
        for batch in _batches(file, group, columns, 4096):
            for row in batch.to_pylist():
                split = row["split"] if said else _split_of(file)
                yield str(row["path"] or ""), group, number, str(split or "")
                number += 1


def _split_of(file: Path) -> str:
    """The split that the name of a file says, as the Hub understands it."""
    if shard := _SHARD.fullmatch(file.stem):
        return shard["split"]
    return next((name for name in (file.stem, file.parent.name) if name in _SPLITS), "")


def _place(path: str) -> str:
    """A row's `path` without what only says that it was packed."""
    return path.removeprefix("./").strip("/").removesuffix(".tar.gz").removesuffix(".tar")


def _columns(file: Path) -> set[str]:
    return set(_opened(file).schema_arrow.names)


def _opened(file: Path) -> "ParquetFile":
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        # a buffer, else a group's whole column would be read at once
        return ParquetFile(file, buffer_size=1 << 20, pre_buffer=False)
    except (pyarrow.ArrowException, OSError) as error:
        if file.is_file() and is_lfs_pointer(file):
            reason = "it is a Git LFS pointer, and not the Parquet file that it stands for"
            raise UnreadableSourceError(file, f"{reason}; {losses.LFS_POINTER.hint}") from None
        raise UnreadableSourceError(file, f"it is no Parquet file: {_reason(error)}; mend or remove it") from None


def _batches(file: Path, group: int, columns: list[str], size: int) -> Iterator[Any]:
    import pyarrow

    try:
        with _opened(file) as opened:
            size = opened.metadata.row_group(group).total_byte_size
            if size > _LARGEST_GROUP:
                reason = f"row group {group} holds {size} bytes; write the file again in groups of 100 tasks or so"
                raise UnreadableSourceError(file, reason)
            yield from opened.iter_batches(size, row_groups=[group], columns=columns, use_threads=False)
    except (pyarrow.ArrowException, OSError) as error:
        reason = f"row group {group} cannot be read: {_reason(error)}; mend the file"
        raise UnreadableSourceError(file, reason) from None


def _reason(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
