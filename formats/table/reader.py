"""A table as a taskset: a task that asks for a reply for each row, as envconvert.toml says."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from envconvert.formats import losses
from envconvert.formats.files import UnreadableSourceError
from envconvert.formats.losses import Ledger, printable
from envconvert.formats.names import ID_BYTES, Apart, folder_name, local_name
from envconvert.formats.rules import Rule
from envconvert.formats.table.mapping import FILE, Document, Mapped, TaskTable, mapped, read_mapping
from envconvert.formats.table.presets import Guess, guess
from envconvert.formats.table.rows import Row, kind, rows
from envconvert.formats.table.templates import TemplateFaultError, is_template, value, values, written
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
    if dataset is not None:
        raise UnreadableSourceError(source, "a table is one dataset; leave out --dataset")
    file = source / FILE if source.is_dir() else source
    mapping = read_mapping(file) if file.name == FILE else _guessed(file)
    document = mapping.document
    if split is not None and split not in mapping.files:
        there = ", ".join(name for name in mapping.files if name) or "none"
        raise UnreadableSourceError(file, f"it has no split {split!r}; its splits: {there}")
    ids: list[str] = []
    sets: dict[str, list[str]] = {title: [] for title in mapping.files if title and split in (None, title)}
    for found in _each(mapping, split):
        ids.append(found.id)
        sets.get(found.split, []).append(found.id)
    chosen = frozenset(select(ids))
    stem = file.parent.resolve().name if file.name == FILE else file.name.partition(".")[0]
    return Taskset(
        name=name or document.name or local_name(stem),
        version=document.version,
        description=document.description,
        licence=document.licence,
        authors=document.authors,
        keywords=document.keywords,
        source=TasksetSource(format=NAME, uri=printable(source.name)),
        ids=tuple(id for id in ids if id in chosen),
        sets={title: tuple(id for id in members if id in chosen) for title, members in sets.items()},
        kind="reply",
        tasks=lambda ledger: _tasks(mapping, split, chosen, ledger),
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


class _Found(msgspec.Struct, frozen=True):
    """A row of the data."""

    split: str
    where: str
    """Its file and its number there."""
    id: str
    fault: TemplateFaultError | None
    """Why it has no id of its own; `id` is then made of what it holds."""
    row: Row


def _each(mapping: Mapped, split: str | None) -> Iterator[_Found]:
    """The rows of `split`, or of all. Ids are told apart over all of them, so that no split changes them."""
    apart = Apart()
    for name, paths in mapping.files.items():
        for path in paths:
            for number, row in enumerate(rows(path), 1):
                fault = None
                try:
                    first = _content_id(row) if mapping.task.id is None else _own_id(mapping.task.id, row)
                except TemplateFaultError as error:
                    first, fault = _content_id(row), error
                id = apart(first)
                if split in (None, name):
                    yield _Found(name, f"{path.name}, row {number}", id, fault, row)


def _content_id(row: Row) -> str:
    canonical = json.dumps(row, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _own_id(template: str, row: Row) -> str:
    try:
        id = _written(template, row)
    except TemplateFaultError as error:
        raise TemplateFaultError(str(error), "task.id") from None
    folder = folder_name(id).encode("utf-8", "surrogatepass")
    if not id.isprintable() or not 0 < len(id.strip()) <= len(folder) <= ID_BYTES:
        raise TemplateFaultError(f"{id!r:.120} is no id: 1 to {ID_BYTES} bytes, no control characters", "task.id")
    return id


def _tasks(mapping: Mapped, split: str | None, chosen: frozenset[str], ledger: Ledger) -> Iterator[ReplyTask]:
    for found in _each(mapping, split):
        if found.id not in chosen:
            continue
        ledger.read += 1
        try:
            if found.fault is not None:
                raise found.fault
            task = _task(mapping, found.id, found.row)
        except TemplateFaultError as error:
            loss = losses.ROW_UNMAPPED.loss(
                task=found.id, format=NAME, field=error.field, value=found.where, reason=error
            )
            ledger.admit(found.id, [loss])
        else:
            yield task


def _task(mapping: Mapped, id: str, row: Row) -> ReplyTask:
    said = mapping.task
    task = ReplyTask(
        id=id,
        prompt=_prompt(said, row),
        rule=_rule(mapping.reward, row),
        replies=_replies(said, row),
        metadata=_metadata(said, row),
    )
    try:
        return msgspec.json.decode(msgspec.json.encode(task), type=ReplyTask)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise TemplateFaultError(f"JSON cannot hold the task: {error}", "task") from None


def _prompt(said: TaskTable, row: Row) -> tuple[Message, ...]:
    if said.messages is None:
        assert said.prompt is not None
        system = (
            () if said.system is None else (Message(role="system", content=_text(said.system, row, "task.system")),)
        )
        asked = _text(said.prompt, row, "task.prompt")
        if not asked.strip():
            raise TemplateFaultError("it is empty", "task.prompt")
        return (*system, Message(role="user", content=asked))
    field = "task.messages"
    messages = values(said.messages, row, field)
    if not isinstance(messages, list) or not all(isinstance(message, Mapping) for message in messages):
        raise TemplateFaultError(f"{messages!r:.120} is no list of messages", field)
    for message in messages:
        if others := sorted(key for key in message.keys() - {"role", "content"} if message[key] is not None):
            raise TemplateFaultError(f"a message has {others[0]!r}, and only role and content are read", field)
    if not messages or messages[-1].get("role") == "assistant":
        raise TemplateFaultError("the last message is none to reply to; leave it out with `[:-1]`", field)
    prompt: tuple[Message, ...] = _converted(messages, tuple[Message, ...], field)
    return prompt


def _rule(said: Mapping[str, Any], row: Row) -> Rule:
    rule: Rule = _converted(values(said, row, "reward"), Rule, "reward")
    return rule


def _converted(made: Any, type: Any, field: str) -> Any:
    """`made` as `type`. Raises `TemplateFaultError`, which names the value that is none."""
    try:
        return msgspec.convert(made, type=type, strict=False)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        path = path.rstrip("`")
        for key, place in re.findall(r"\.(\w+)|\[(\d+)\]", path):
            made = made[key] if key else made[int(place)]
        hint = "; write it with `| string`" if reason.startswith("Expected `str`, got `int`") else ""
        raise TemplateFaultError(f"{reason}: {made!r:.120}{hint}", f"{field}{path}") from None


def _replies(said: TaskTable, row: Row) -> dict[str, Reply]:
    reference = None if said.reference is None else _text(said.reference, row, "task.reference")
    return {"reference": Reply(text=reference)} if reference else {}


def _metadata(said: TaskTable, row: Row) -> dict[str, Any]:
    """What is null is left out."""
    found = {}
    for name, template in said.metadata.items():
        field = f"task.metadata.{name}"
        made = values(template, row, field)
        if made is not None:
            if _has_null(made):
                raise TemplateFaultError("a null is in it, which metadata does not hold; write it with `| json`", field)
            found[name] = made
    return found


def _has_null(made: Any) -> bool:
    if isinstance(made, Mapping):
        return any(map(_has_null, made.values()))
    return any(map(_has_null, made)) if isinstance(made, (list, tuple)) else made is None


def _text(template: str, row: Row, field: str) -> str:
    try:
        return _written(template, row)
    except TemplateFaultError as error:
        raise TemplateFaultError(str(error), field) from None


def _written(template: str, row: Row) -> str:
    return written(value(template, row)) if is_template(template) else template
