"""The rows that the Hub's dataset viewer shows, and `datasets.load_dataset` gives: one a task, in Parquet files."""

import re
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from envconvert.formats.files import Target
from envconvert.formats.taskset import ContainerTask, Steps, Taskset, network_of_agent
from envconvert.inspection import container_kind

if TYPE_CHECKING:
    import pyarrow
    from pyarrow.parquet import ParquetWriter

FOLDER = "data"
_WHOLE = "train"
"""The split where the sets of a taskset do not divide it: what the Hub calls data of which nothing is said."""
_ROWS, _CHARACTERS = 1000, 1 << 22  # of one row group: what is kept in memory until it is written

Row = dict[str, Any]


def splits(taskset: Taskset) -> dict[str, str] | None:
    """The split of each id, where the sets of `taskset` are parts of it that do not overlap and leave nothing out."""
    named = {re.sub(r"\W", "_", name, flags=re.ASCII): ids for name, ids in taskset.sets.items() if ids}
    split_of = {id: name for name, ids in named.items() for id in ids}
    told = sum(len(ids) for ids in taskset.sets.values())
    return split_of if len(named) > 1 and told == len(split_of) == len(taskset.ids) else None


def row(task: ContainerTask, path: str, formats: Iterable[str]) -> Row:
    """What the viewer shows of `task`, stored at `path` for `formats`; its split and its sets come from the taskset."""
    steps = task.interaction.steps if isinstance(task.interaction, Steps) else ()
    prompt = steps[0].prompt if steps else task.prompt
    tags = task.metadata.get("tags")
    return {
        "id": task.id,
        "prompt": "\n\n".join(message.text for message in prompt),
        "steps": max(len(steps), 1),
        "reward": str(task.reward.__struct_config__.tag),
        "reward_key": task.reward.key,
        "container": container_kind(task.container),
        "image": task.container.image,
        "difficulty": _text(task.metadata.get("difficulty")),
        "category": _text(task.metadata.get("category")),
        "tags": [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else [],
        "agent_seconds": task.limits.agent,
        "tests_seconds": task.limits.tests,
        "cpus": task.container.cpus,
        "memory_mb": task.container.memory_mb,
        "storage_mb": task.container.storage_mb,
        "gpus": task.container.gpus,
        "network": network_of_agent(task, steps[0] if steps else None).mode,
        "has_reference": any(attempt is not None for attempt in (task.reference, *(step.reference for step in steps))),
        "frameworks": list(formats),
        "path": path,
    }


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _schema() -> "pyarrow.Schema":
    import pyarrow

    text, texts = pyarrow.string(), pyarrow.list_(pyarrow.string())
    return pyarrow.schema(
        {
            "id": text,
            "split": text,
            "sets": texts,
            "prompt": text,
            "steps": pyarrow.int32(),
            "reward": text,
            "reward_key": text,
            "container": text,
            "image": text,
            "difficulty": text,
            "category": text,
            "tags": texts,
            "agent_seconds": pyarrow.float64(),
            "tests_seconds": pyarrow.float64(),
            "cpus": pyarrow.float64(),
            "memory_mb": pyarrow.int64(),
            "storage_mb": pyarrow.int64(),
            "gpus": pyarrow.int32(),
            "network": text,
            "has_reference": pyarrow.bool_(),
            "frameworks": texts,
            "path": text,
        }
    )


class Rows:
    """Writes rows to `<split>-00000-of-00001.parquet` of a target, a row group at a time; use it with `with`."""

    def __init__(self, taskset: Taskset, target: Target) -> None:
        self._split_of = splits(taskset)
        self._sets: dict[str, list[str]] = {}
        for name, ids in taskset.sets.items():
            for id in ids:
                self._sets.setdefault(id, []).append(name)
        self._target = target
        self._waiting: dict[str, list[Row]] = {}
        self._size = 0
        self._writers: dict[str, ParquetWriter] = {}
        self.counts: dict[str, int] = {}
        """Rows by split, in the order in which the splits begin."""

    def __enter__(self) -> "Rows":
        return self

    def add(self, row: Row) -> None:
        """Write one row, now or later."""
        split = self._split_of[row["id"]] if self._split_of else _WHOLE
        self._waiting.setdefault(split, []).append({**row, "split": split, "sets": self._sets.get(row["id"], [])})
        self.counts[split] = self.counts.get(split, 0) + 1
        self._size += len(row["prompt"])
        if self._size > _CHARACTERS or len(self._waiting[split]) == _ROWS:
            self._flush()

    def _flush(self) -> None:
        import pyarrow
        from pyarrow.parquet import ParquetWriter

        for split, rows in self._waiting.items():
            if split not in self._writers:
                self._writers[split] = ParquetWriter(self._target.root / _file(split), _schema())
            self._writers[split].write_table(pyarrow.Table.from_pylist(rows, _schema()))
        self._waiting, self._size = {}, 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self._flush()
        for split, writer in self._writers.items():
            writer.close()
            if kind is None:
                self._target.count(_file(split))


def _file(split: str) -> str:
    return f"{split}-00000-of-00001.parquet"


def configs(counts: Mapping[str, int]) -> list[dict[str, Any]]:
    """The part of a dataset card that names the files of each split, so that no other file is taken for data."""
    files = [{"split": split, "path": f"{FOLDER}/{split}-*.parquet"} for split in counts]
    return [{"config_name": "default", "data_files": files}]
