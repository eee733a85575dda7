"""A package that is run, where `--execute` lets it: its rows and rewards are what it says itself.

What its source tells for certain stays as it was read, so that rules come before hosting; what it does not is filled
in.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import msgspec
from packaging.requirements import InvalidRequirement, Requirement

from envconvert.formats import losses
from envconvert.formats.execution import Execution, ExecutionError
from envconvert.formats.probe import Framework
from envconvert.formats.verifiers.sources.dataset import ROWS, Table
from envconvert.formats.verifiers.sources.description import (
    HOOKS,
    Description,
    Doubt,
    Environment,
    Ran,
    data_of,
    hindrances,
    parameter,
    v1_hooks,
)
from envconvert.formats.verifiers.sources.generation import V0, V1_02, V1_04
from envconvert.formats.verifiers.sources.operations import is_plain
from envconvert.formats.verifiers.sources.values import Class, External, Instance, Unknown, Where

UNSAID = ("verifiers-executes", "verifiers-data")
"""Codes of what running a package may tell."""

_MEGABYTES = {V0: 900}
"""Of a release when installed, with what it depends on; else that of 0.4.0."""
_OTHERS_MEGABYTES = 480


class _Row(msgspec.Struct):
    row: dict[str, Any]
    unsaid: dict[str, str]
    of: int
    split: str


class _Line(msgspec.Struct):
    """One of the report: which, says the field that it has; a row has none of these."""

    environment: Ran | None = None
    endless: str | None = None
    end: int | None = None


def can_run(found: Description) -> bool:
    """Whether packages of its generation are run."""
    return found.generation.name in (V0, V1_02, V1_04) and all(each.kind != "Harness" for each in found.environments)


def requirements(found: Description) -> tuple[str, ...]:
    """What the package needs besides Verifiers. Raises `ExecutionError`."""
    made: list[str] = []
    for text in found.dependencies:
        try:
            said = Requirement(text)
        except InvalidRequirement:
            raise ExecutionError(losses.EXECUTE_INSTALL, f"{text!r} is no requirement") from None
        if said.url is not None:
            raise ExecutionError(losses.EXECUTE_INSTALL, f"{text!r} is at an address of its own, and would be built")
        if said.name.lower() != "verifiers":
            made.append(str(said))
        elif said.extras:
            made.append(f"verifiers[{','.join(sorted(said.extras))}]=={found.generation.release}")
    return tuple(made)


def framework(found: Description) -> Framework:
    """Verifiers, of the release that the package runs with, and what it needs beside it. Raises `ExecutionError`."""
    foreign = requirements(found)
    name = "verifiers"
    if foreign:
        name += f"-with-{hashlib.sha256(json.dumps(foreign).encode()).hexdigest()[:12]}"
    return Framework(
        name=name,
        requirement=f"verifiers=={found.generation.release}",
        python=(3, 11),
        megabytes=_MEGABYTES.get(found.generation.name, _OTHERS_MEGABYTES),
        beside=("pathspec>=0.12",) if found.generation.name != V0 and not foreign else (),
        foreign=foreign,
    )


def run(found: Description, root: Path, arguments: Mapping[str, Any], execution: Execution) -> Description:
    """`found`, the package at `root`, with what running it tells. Raises `ExecutionError`."""
    asked = {
        "module": found.entry,
        "arguments": dict(arguments),
        "limit": execution.limit,
        "rows": ROWS,
        "hooks": HOOKS,
    }
    with as_file(files("envconvert.formats.verifiers") / "drivers" / "report_package.py") as driver:
        lines = execution.report(framework(found), driver, asked, root)
    told, rows = _read(lines)
    there = found.environments if len(found.environments) == len(told) else [None] * len(told)
    made = []
    for number, (ran, environment) in enumerate(zip(told, there, strict=True)):
        own = [row for row in rows if row.of == number]
        merged = _v0 if found.generation.name == V0 else _v1
        made.append(msgspec.structs.replace(merged(found, environment, ran, own), ran=ran, number=number))
    return msgspec.structs.replace(found, environments=tuple(made))


def _read(lines: Sequence[bytes]) -> tuple[list[Ran], list[_Row]]:
    """The environments and rows of a report. Raises `ExecutionError`."""
    told: list[Ran] = []
    rows: list[_Row] = []
    ended = False
    for number, text in enumerate(lines):
        try:
            line = msgspec.json.decode(text, type=_Line)
            if line.environment is not None:
                told.append(line.environment)
            elif line.endless is not None:
                raise ExecutionError(losses.EXECUTE_ENDLESS, line.endless)
            elif line.end is not None:
                ended = line.end == number and number == len(lines) - 1
            else:
                row = msgspec.json.decode(text, type=_Row)
                if not 0 <= row.of < len(told):
                    raise ExecutionError(losses.EXECUTE_REPORT, f"line {number + 1} is of no environment")
                rows.append(row)
        except msgspec.DecodeError as error:
            raise ExecutionError(losses.EXECUTE_REPORT, f"line {number + 1}: {error}") from None
    if not ended:
        raise ExecutionError(losses.EXECUTE_REPORT, f"it ends after line {len(lines)}")
    return told, rows


_RUN = Where("the package as it runs", 0)


def _values(row: _Row) -> dict[str, Any]:
    """What a row holds. Messages of a table have each field that any of them has."""
    said = row.row
    if isinstance(said.get("prompt"), list):
        prompt = [{k: v for k, v in m.items() if v is not None} if isinstance(m, dict) else m for m in said["prompt"]]
        said = {**said, "prompt": prompt}
    return said | {name: Unknown(f"a value of the type {kind}", _RUN) for name, kind in row.unsaid.items()}


def _v0(found: Description, read: Environment | None, ran: Ran, rows: Sequence[_Row]) -> Environment:
    """An environment of v0: the rows that its source tells, if it tells all of them, and its rewards likewise."""
    doubts = list(hindrances(found.entry, ran.kind, ran.own, ran.overridden))
    made = read or Environment(kind=ran.kind)
    unsaid = [each for each in made.doubts + made.hindrances if each.code in UNSAID]
    known = [row for table in made.rows.values() if isinstance(table, Table) for row in table.rows]
    if read is None or unsaid or not known or not is_plain(known):
        tables: dict[str, Table] = {}
        for row in rows:
            # which row it is, Verifiers counts; and the prompt says what the question is
            values = {name: value for name, value in _values(row).items() if name != "example_id"}
            tables.setdefault(row.split, Table(list(values), [], "its code")).rows.append(values)
        made = msgspec.structs.replace(made, rows=tables, data=("its code",), system=None, few_shot=())
    return msgspec.structs.replace(
        made,
        kind=ran.kind,
        own=ran.own,
        tools=ran.tools,
        turns=ran.turns if ran.kind != "SingleTurnEnv" else None,
        doubts=(),
        hindrances=tuple(doubts),
        is_told=_weights(made) == sorted((each.name, each.weight) for each in ran.rewards if each.weight),
    )


def _weights(environment: Environment) -> list[tuple[str, float]]:
    return sorted((each.name, each.weight) for each in environment.rewards if each.weight)


def _v1(found: Description, read: Environment | None, ran: Ran, rows: Sequence[_Row]) -> Environment:
    """A taskset of v1. Where its source does not tell the rows, their class is the one that it is said to be of."""
    assert read is not None  # there is one, and its report has one
    doubts: list[Doubt] = []
    if ran.players is not None:
        doubts.append(Doubt("verifiers-players", ran.players, ran.players))
    doubts += [Doubt("verifiers-intercept", found.entry, name) for name in ran.intercepts]
    if ran.tools:
        doubts.append(Doubt("verifiers-tools", found.entry, ", ".join(ran.tools)))
    if ran.overridden:
        doubts.append(Doubt("verifiers-sandbox", found.entry, ", ".join(ran.overridden)))
    made = read
    known = made.rows.get("")
    loaded = known if isinstance(known, list) else []
    if not loaded or not all(is_plain(data_of(each)) for each in loaded):
        task = None if made.taskset is None else parameter(made.taskset, "Task")
        of: Class | External = task or External("verifiers.Task")
        config = Unknown("the config of a task", _RUN)
        instances = [
            Instance(of, _RUN, {"0": Instance(External("verifiers.TaskData"), _RUN, _values(row)), "1": config})
            for row in rows
        ]
        rewards = v1_hooks(task, made.taskset)[0] if task is not None and made.taskset is not None else []
        made = msgspec.structs.replace(made, rows={"": instances}, data=("its code",), rewards=tuple(rewards))
    return msgspec.structs.replace(
        made,
        doubts=(),
        hindrances=tuple(doubts),
        tools=ran.tools,
        is_told=not ran.judges and _weights(made) == sorted((e.name, e.weight) for e in ran.rewards if e.weight),
    )
