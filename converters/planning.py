"""What would become of each task in each format, with nothing written."""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Literal, Unpack

import msgspec

from envconvert import __version__
from envconvert.formats.catalogue import Format, formats_named
from envconvert.formats.losses import HOSTED, KINDS, Ledger, Loss, Severity, one_line, printable
from envconvert.formats.taskset import Taskset
from envconvert.inspection import ServerShown, describe_server, servers_of
from envconvert.pipeline import Reading, read
from envconvert.report import Level, Levels, TaskCounts, counts, level_of, levels
from envconvert.workers import in_order, parts

Fidelity = Literal["lossless", "degraded", "refused"]
_FIDELITY: dict[Severity | None, Fidelity] = {Severity.DEGRADED: "degraded", Severity.REFUSED: "refused"}


class PlanSource(msgspec.Struct, kw_only=True):
    """Where the tasks are."""

    format: str
    uri: str
    revision: str | None


class PlanTarget(msgspec.Struct, kw_only=True):
    """What would be written."""

    formats: list[str]


class PlannedTask(msgspec.Struct, kw_only=True):
    """What would become of one task: how it would be carried, null where it would not, and the codes of its losses."""

    task: str
    fidelity: Fidelity
    level: Level | None
    losses: list[str]


class Plan(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The report that a conversion to one format would make, without digests, and each task beside it."""

    envconvert: str
    source: PlanSource
    target: PlanTarget
    tasks: TaskCounts
    levels: Levels
    losses: list[Loss]
    plan: list[PlannedTask]
    servers: list[ServerShown] = []
    """Those that play the tasks."""

    @property
    def exit_code(self) -> int:
        """0: every task would be written; 3: some would not; 4: none would."""
        if self.tasks.written == 0:
            return 4
        return 3 if self.tasks.refused else 0


def plan(
    source: str | Path,
    *,
    to: str | Sequence[str],
    strict: bool = False,
    jobs: int | None = 1,
    **reading: Unpack[Reading],
) -> list[Plan]:
    """What `convert` would do with the same options, one plan a format; `all` in `to` is every format.

    Nothing is written, and no file but those that are read for what a task says is opened: what only writing can find,
    such as a file that changes meanwhile, is not foreseen.
    """
    targets = formats_named(to)
    taskset = read(source, **reading)
    ledgers = [Ledger(strict=strict) for _ in targets]
    for target, ledger in zip(targets, ledgers, strict=True):
        ledger.admit("", target.losses(taskset))
    with closing(in_order(partial(_plan_part, targets, strict), parts(taskset, jobs), jobs)) as done:
        for part in done:
            for ledger, found in zip(ledgers, part, strict=True):
                ledger.include(found)
    servers = servers_of(taskset)
    return [_plan(taskset, target, ledger, servers) for target, ledger in zip(targets, ledgers, strict=True)]


def _plan_part(targets: Sequence[Format], strict: bool, part: Taskset) -> list[Ledger]:
    """What each format's ledger would hold. The tasks are read once, and what reading records is told to each."""
    reading = Ledger(strict=strict)
    ledgers = [Ledger(strict=strict) for _ in targets]
    told = 0
    for task in part.tasks(reading):
        for target, ledger in zip(targets, ledgers, strict=True):
            _tell(reading, told, ledger)
            ledger.written += target.admits(task, part, ledger)
        told = len(reading.losses)
    for ledger in ledgers:
        _tell(reading, told, ledger)
        ledger.read = reading.read
    return ledgers


def _tell(reading: Ledger, told: int, ledger: Ledger) -> None:
    for loss in reading.losses[told:]:
        ledger.admit(loss.task, [loss])


def _plan(taskset: Taskset, format: Format, ledger: Ledger, servers: list[ServerShown]) -> Plan:
    codes: dict[str, list[str]] = {}
    for loss in ledger.losses:
        codes.setdefault(loss.task, []).append(loss.code)
    return Plan(
        envconvert=__version__,
        source=PlanSource(format=taskset.source.format, uri=taskset.source.uri, revision=taskset.source.revision),
        target=PlanTarget(formats=[format.name]),
        tasks=counts(ledger),
        levels=levels(taskset, [format.name], ledger.written, ledger.with_code(HOSTED.code)),
        losses=ledger.losses,
        servers=servers,
        plan=[_planned(id, taskset, format, ledger, codes.get(printable(id), [])) for id in taskset.ids],
    )


def _planned(id: str, taskset: Taskset, format: Format, ledger: Ledger, codes: list[str]) -> PlannedTask:
    worst = ledger.worst(id)
    return PlannedTask(
        task=printable(id),
        fidelity=_FIDELITY.get(worst, "lossless"),
        level=None if worst is Severity.REFUSED else level_of(taskset, [format.name], codes),
        losses=codes,
    )


def describe(plans: Sequence[Plan]) -> str:
    """`plans` for people: a line a format, then the reasons, most frequent first, then the tasks that are refused."""
    lines: list[str] = []
    for plan in plans:
        found = plan.tasks
        lines.append(
            f"{plan.source.uri} -> {plan.target.formats[0]}: {found.written} of {found.read} tasks would be written"
            f" ({found.lossless} lossless, {found.degraded} degraded, {found.refused} refused)"
        )
    for server in plans[0].servers if plans else ():
        lines += describe_server(server)
    for plan in plans:
        lines += _reasons(plan)
        lines += [
            one_line(f"{loss.task}: {loss.field}: {loss.message}; {loss.hint} [{loss.code}]")
            for loss in plan.losses
            if loss.severity is Severity.REFUSED
        ]
    return "\n".join(lines)


def _reasons(plan: Plan) -> list[str]:
    """A table: code, how severe it is, how many tasks, what would help."""
    tasks = Counter(code for code, _ in {(loss.code, loss.task) for loss in plan.losses})
    if not tasks:
        return []
    severity = {loss.code: loss.severity for loss in plan.losses}
    rows = [("tasks", "", "code", "what would help")]
    rows += [
        (str(count), severity[code].value, code, KINDS[code].hint)
        for code, count in sorted(tasks.items(), key=lambda item: (-item[1], item[0]))
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    title = f"\n{plan.target.formats[0]}"
    return [title] + [
        f"  {tasks:>{widths[0]}}  {severity:{widths[1]}}  {code:{widths[2]}}  {hint}".rstrip()
        for tasks, severity, code, hint in rows
    ]
