"""What a conversion did, as `envconvert.json` holds it and `--json` prints it."""

import msgspec

from envconvert import __version__
from envconvert.formats.files import Target
from envconvert.formats.losses import Ledger, Loss, Severity
from envconvert.formats.taskset import Taskset

FILE = "envconvert.json"


class SourceReport(msgspec.Struct, kw_only=True):
    """Where the tasks came from; `digest` is over the files that were carried, by their path in the source."""

    format: str
    uri: str
    revision: str | None
    digest: str


class TargetReport(msgspec.Struct, kw_only=True):
    """What was written; `digest` is over all of it but this report."""

    formats: list[str]
    digest: str


class TaskCounts(msgspec.Struct, kw_only=True):
    """How many tasks were read, and what became of them: read = lossless + degraded + refused."""

    read: int
    written: int
    lossless: int
    degraded: int
    refused: int


class Levels(msgspec.Struct, kw_only=True):
    """How the written tasks are carried: by the framework itself, by our grader, or by running the source's code."""

    native: int
    portable: int = 0
    hosted: int = 0


class Report(msgspec.Struct, kw_only=True):
    """One conversion to one format."""

    envconvert: str
    source: SourceReport
    target: TargetReport
    tasks: TaskCounts
    levels: Levels
    losses: list[Loss]

    @property
    def exit_code(self) -> int:
        """0: every task was written; 3: some were not; 4: none was."""
        if self.tasks.written == 0:
            return 4
        return 3 if self.tasks.refused else 0


def report(taskset: Taskset, format: str, target: Target, ledger: Ledger) -> Report:
    """The report of writing `taskset` as `format` to `target`, with `ledger` kept on the way."""
    source = taskset.source
    return Report(
        envconvert=__version__,
        source=SourceReport(format=source.format, uri=source.uri, revision=source.revision, digest=str(target.carried)),
        target=TargetReport(formats=[format], digest=str(target.written)),
        tasks=counts(ledger),
        levels=Levels(native=ledger.written),
        losses=ledger.losses,
    )


def counts(ledger: Ledger) -> TaskCounts:
    """How many tasks `ledger` knows, and what became of them."""
    refused, degraded = ledger.count(Severity.REFUSED), ledger.count(Severity.DEGRADED)
    return TaskCounts(
        read=ledger.read,
        written=ledger.written,
        lossless=ledger.read - degraded - refused,
        degraded=degraded,
        refused=refused,
    )


def to_json(value: object) -> str:
    """`value`, a report or a list of plain values, as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
