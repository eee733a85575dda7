"""A table as a taskset: a task that asks for a reply for each row, as envconvert.toml says."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from envconvert.formats import losses
from envconvert.formats.files import UnreadableSourceError
from envconvert.formats.losses import Ledger, printable
from envconvert.formats.rules import Rule
from envconvert.formats.table.mapping import FILE, Document, Mapped, mapped, read_mapping
from envconvert.formats.table.presets import Guess, guess
from envconvert.formats.table.rows import Row, kind, rows
from envconvert.formats.table.templates import TemplateFaultError, value, values
from envconvert.formats.taskset import Message, Reply, ReplyTask, Select, Taskset, TasksetSource, every

NAME = "table"
SAMPLE = 1000
"""Rows that are looked at to guess a shape."""


def detect(source: Path) -> bool:
    """Whether `source` is a mapping, a folder with one, or a data file."""
    if source.is_dir():
        return (source / FILE).is_file()
    return source.is_file() and (source.name == FILE or kind(source) is not None)


def read(
    source: Path,
    *,
    name: str | None,
    reward_key: str | None,
    select: Select = every,
    dataset: str | None = None,
    split: str | None = None,
) -> Taskset:
    """The taskset of the mapping, or the data file, at `source`. Raises `UnreadableSourceError`.

    A data file without a mapping is read where its rows have the shape of a preset, and nothing about it is unsure.
    """
    file = source / FILE if source.is_dir() else source
    mapping = read_mapping(file) if file.name == FILE else _guessed(file)
    document = mapping.document
    if split is not None and split not in mapping.files:
        there = ", ".join(name for name in mapping.files if name) or "none"
        raise UnreadableSourceError(file, f"it has no split {split!r}; its splits: {there}")
    files = {name: paths for name, paths in mapping.files.items() if split in (None, name)}
    ids, sets = _ids(mapping.task.id, files)
    chosen = frozenset(select(ids))
    stem = file.parent.resolve().name if file.name == FILE else file.name.partition(".")[0]
    return Taskset(
        name=name or document.name or f"local/{stem}",
        version=document.version,
        description=document.description,
        licence=document.licence,
        authors=document.authors,
        keywords=document.keywords,
        source=TasksetSource(format=NAME, uri=printable(source.name)),
        ids=tuple(id for id in ids if id in chosen),
        sets={title: tuple(id for id in members if id in chosen) for title, members in sets.items() if title},
        kind="reply",
        tasks=lambda ledger: _tasks(mapping, files, chosen, ledger),
    )


def sample(file: Path) -> list[Row]:
    """The first rows of `file`. Raises `UnreadableSourceError`."""
    return list(islice(rows(file), SAMPLE))


def _guessed(file: Path) -> Mapped:
    found = sample(file)
    if found and "responses_create_params" in found[0]:
        raise UnreadableSourceError(file, "its rows are NeMo Gym's; --from nemo-gym reads them")
    shape = guess(found)
    if shape is None or shape.unsure:
        why = "; ".join(shape.unsure) if shape else f"its columns are {', '.join(found[0]) if found else 'none'}"
        reason = f"what its rows mean is not sure ({why}); envconvert init {file.name} begins a mapping that says it"
        raise UnreadableSourceError(file, reason)
    return mapped(mapping_of(file, shape), file)


def mapping_of(file: Path, shape: Guess) -> Document:
    """The mapping of `file`, whose rows have `shape`."""
    return Document(data=file.name, preset=shape.preset.name, columns=shape.columns)


def _each(template: str | None, files: Mapping[str, Sequence[Path]]) -> Iterator[tuple[str, Path, int, str, Row]]:
    """Every row with its split, its file, its number there, and its id."""
    seen: Counter[str] = Counter()
    for split, paths in files.items():
        for path in paths:
            for number, row in enumerate(rows(path), 1):
                id = _id(template, row, path, number)
                seen[id] += 1
                yield split, path, number, id if seen[id] == 1 else f"{id}-{seen[id]}", row


def _id(template: str | None, row: Row, path: Path, number: int) -> str:
    if template is None:
        canonical = json.dumps(row, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
        return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    try:
        return str(value(template, row))
    except TemplateFaultError as error:
        raise UnreadableSourceError(path, f"row {number}: task.id: {error}") from None


def _ids(template: str | None, files: Mapping[str, Sequence[Path]]) -> tuple[list[str], dict[str, list[str]]]:
    found: list[str] = []
    sets: dict[str, list[str]] = {split: [] for split in files}
    for split, _, _, id, _ in _each(template, files):
        found.append(id)
        sets[split].append(id)
    return found, sets


def _tasks(
    mapping: Mapped, files: Mapping[str, Sequence[Path]], chosen: frozenset[str], ledger: Ledger
) -> Iterator[ReplyTask]:
    for _, path, number, id, row in _each(mapping.task.id, files):
        if id not in chosen:
            continue
        ledger.read += 1
        field = "task"
        try:
            field = "reward"
            rule = _rule(mapping.reward, row)
            field = "task"
            task = _task(mapping, id, row, rule)
        except (TemplateFaultError, msgspec.ValidationError) as error:
            where = f"{path.name}, row {number}"
            ledger.admit(id, [losses.ROW_UNMAPPED.loss(task=id, format=NAME, field=field, value=where, reason=error)])
            continue
        yield task


def _rule(said: Mapping[str, Any], row: Row) -> Rule:
    rule: Rule = msgspec.convert(values(dict(said), row), type=Rule, strict=False)
    return rule


def _task(mapping: Mapped, id: str, row: Row, rule: Rule) -> ReplyTask:
    task = mapping.task
    said = None if task.reference is None else str(value(task.reference, row))
    return ReplyTask(
        id=id,
        prompt=_prompt(mapping, row),
        rule=rule,
        replies={"reference": Reply(text=said)} if said else {},
        metadata={name: value(template, row) for name, template in task.metadata.items()},
    )


def _prompt(mapping: Mapped, row: Row) -> tuple[Message, ...]:
    task = mapping.task
    if task.messages is not None:
        return msgspec.convert(values(task.messages, row), type=tuple[Message, ...])
    assert task.prompt is not None
    system = () if task.system is None else (Message(role="system", content=str(value(task.system, row))),)
    return (*system, Message(role="user", content=str(value(task.prompt, row))))
