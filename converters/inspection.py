"""What is in a source, and what the formats hold."""

from collections import Counter
from contextlib import closing

import msgspec

from envconvert.formats.catalogue import FORMATS
from envconvert.formats.losses import Ledger, Loss
from envconvert.formats.parts import PARTS
from envconvert.formats.taskset import Container, ContainerTask, Taskset
from envconvert.workers import in_order, parts


class Inspection(msgspec.Struct, kw_only=True):
    """What `inspect --json` prints. `tasks` counts those that can be read; the losses say which cannot, and why."""

    format: str
    name: str
    tasks: int
    sets: dict[str, int]
    rewards: dict[str, int]
    containers: dict[str, int]
    interactions: dict[str, int]
    losses: list[Loss]

    @property
    def exit_code(self) -> int:
        """0: every task can be read; 3: some cannot; 4: none can."""
        if self.tasks == 0:
            return 4
        return 3 if any(loss.severity == "refused" for loss in self.losses) else 0


class _Tally(msgspec.Struct):
    """What the tasks are made of."""

    ledger: Ledger
    tasks: int
    rewards: Counter[str]
    containers: Counter[str]
    interactions: Counter[str]

    @classmethod
    def empty(cls) -> "_Tally":
        return cls(Ledger(), 0, Counter(), Counter(dict.fromkeys(("image", "build", "compose", "none"), 0)), Counter())

    def include(self, other: "_Tally") -> None:
        self.ledger.include(other.ledger)
        self.tasks += other.tasks
        self.rewards.update(other.rewards)
        self.containers.update(other.containers)
        self.interactions.update(other.interactions)


def inspect(taskset: Taskset, *, jobs: int | None = 1) -> Inspection:
    """Read every task of `taskset` and count what it is made of; `jobs` as in `convert`."""
    found = _Tally.empty()
    with closing(in_order(_tally, parts(taskset, jobs), jobs)) as done:
        for part in done:
            found.include(part)
    return Inspection(
        format=taskset.source.format,
        name=taskset.name,
        tasks=found.tasks,
        sets={name: len(ids) for name, ids in taskset.sets.items()},
        rewards=dict(found.rewards),
        containers=dict(found.containers),
        interactions=dict(found.interactions),
        losses=found.ledger.losses,
    )


def _tally(part: Taskset) -> _Tally:
    found = _Tally.empty()
    for task in part.tasks(found.ledger):
        found.tasks += 1
        if isinstance(task, ContainerTask):
            found.rewards[_tag(task.reward)] += 1
            found.containers[container_kind(task.container)] += 1
            found.interactions[_tag(task.interaction)] += 1
        else:
            found.rewards[_tag(task.rule)] += 1
            found.containers["none"] += 1
            found.interactions["reply"] += 1
    return found


def _tag(part: msgspec.Struct) -> str:
    return str(part.__struct_config__.tag)


def container_kind(container: Container) -> str:
    """What decides at run time: a compose file, else the image, else the build."""
    if container.build and container.build.compose:
        return "compose"
    if container.image:
        return "image"
    return "build" if container.build else "none"


def describe(found: Inspection) -> str:
    """`found` for people."""
    lines = [f"{found.name}: {found.tasks} {FORMATS[found.format].title} tasks"]
    for title in ("sets", "rewards", "containers", "interactions"):
        counts = ", ".join(f"{name} {n}" for name, n in getattr(found, title).items() if n)
        lines.append(f"  {title}: {counts or 'none'}")
    return "\n".join(lines)


def catalogue() -> list[dict[str, object]]:
    """The formats as plain values."""
    return [
        {
            "name": entry.name,
            "tag": entry.tag,
            "release": entry.release,
            "reads": entry.reads,
            "writes": entry.writes,
            "holds": [part.name for part in PARTS if part.name in entry.holds],
            "refuses": [part.name for part in PARTS if entry.writes and part.name not in entry.holds],
        }
        for entry in FORMATS.values()
    ]


def describe_catalogue() -> str:
    """The formats for people."""
    lines: list[str] = []
    for entry in FORMATS.values():
        lines.append(f"{entry.name}  ({entry.title} {entry.release})")
        lines.append(f"  reads:  {entry.reads}")
        if not entry.writes:
            lines.append("  is not written")
            continue
        lines.append(f"  holds:  {', '.join(part.name for part in PARTS if part.name in entry.holds)}")
        if lost := [part.name for part in PARTS if part.name not in entry.holds]:
            lines.append(f"  not yet: {', '.join(lost)}")
    return "\n".join(lines)
