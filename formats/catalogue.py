"""The formats: one entry each, which readers, writers, docs and the command line look up by name."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from envconvert.formats import parts
from envconvert.formats.files import Target
from envconvert.formats.losses import Ledger
from envconvert.formats.probe import Probe
from envconvert.formats.taskset import Select, Task, Taskset, every


class Reader(Protocol):
    """The module `reader` of a format's folder."""

    def detect(self, source: Path) -> bool:
        """Whether `source` looks like this format."""

    def read(self, source: Path, *, name: str | None, reward_key: str | None, select: Select = every) -> Taskset:
        """The taskset at `source`. Raises `UnreadableSourceError`."""


class Writer(Protocol):
    """The module `writer` of a format's folder."""

    def write(self, taskset: Taskset, target: Target, ledger: Ledger) -> None:
        """Write every task that the ledger admits, and what the format needs beside them."""


@dataclass(frozen=True, slots=True)
class Format:
    """One way to store a taskset. Its folder's modules are imported when they are first used."""

    name: str
    tag: str | None
    """The framework tag of the Hub, if it has one."""
    release: str
    """The framework's release that it is written for and measured against."""
    title: str
    reads: str
    """What of the format can be read, in words."""
    holds: frozenset[str]
    """Names of the parts (parts.py) that what is written can hold."""

    @property
    def reader(self) -> Reader:
        """Its reader."""
        return cast(Reader, import_module(f"envconvert.formats.{self.name}.reader"))

    @property
    def probe(self) -> Probe:
        """How its real framework loads and scores what is stored in it."""
        return cast(Probe, import_module(f"envconvert.formats.{self.name}.probe").PROBE)

    def write(self, taskset: Taskset, target: Target, ledger: Ledger) -> None:
        """Write `taskset` to `target`, without the tasks that have a part that this format cannot hold."""

        def holdable(ledger: Ledger) -> Iterator[Task]:
            for task in taskset.tasks(ledger):
                if ledger.admit(task.id, parts.missing(task, self.holds, self.name)):
                    yield task

        writer = cast(Writer, import_module(f"envconvert.formats.{self.name}.writer"))
        writer.write(taskset.of(holdable), target, ledger)


FORMATS: dict[str, Format] = {
    entry.name: entry
    for entry in (
        Format(
            name="verifiers",
            tag="verifiers",
            release="0.4.0",
            title="Verifiers",
            reads="packages that envconvert wrote",
            holds=parts.BASIC,
        ),
        Format(
            name="harbor",
            tag="harbor",
            release="0.25.0",
            title="Harbor",
            reads="a task folder, a folder of them (flat or in groups), a repository with tasks/",
            holds=parts.EVERY,
        ),
    )
}
"""By name, in the order in which a source is tried: a format whose layout contains another's comes first."""
