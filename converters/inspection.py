"""What is in a source, and what the formats hold."""

from collections import Counter

import msgspec

from envconvert.formats.catalogue import FORMATS
from envconvert.formats.losses import Ledger, Loss
from envconvert.formats.parts import PARTS
from envconvert.formats.taskset import Container, Taskset


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


def inspect(taskset: Taskset) -> Inspection:
    """Read every task of `taskset` and count what it is made of."""
    ledger = Ledger()
    rewards: Counter[str] = Counter()
    containers = Counter({"image": 0, "build": 0, "compose": 0, "none": 0})
    interactions: Counter[str] = Counter()
    count = 0
    for task in taskset.tasks(ledger):
        count += 1
        rewards[_tag(task.reward)] += 1
        containers[_container(task.container)] += 1
        interactions[_tag(task.interaction)] += 1
    return Inspection(
        format=taskset.source.format,
        name=taskset.name,
        tasks=count,
        sets={},
        rewards=dict(rewards),
        containers=dict(containers),
        interactions=dict(interactions),
        losses=ledger.losses,
    )


def _tag(part: msgspec.Struct) -> str:
    return str(part.__struct_config__.tag)


def _container(container: Container) -> str:
    """What decides at run time: a compose file, else the image, else the build."""
    if container.build and container.build.compose:
        return "compose"
    if container.image:
        return "image"
    return "build" if container.build else "none"


def describe(found: Inspection) -> str:
    """`found` for people."""
    lines = [f"{found.name}: {found.tasks} {FORMATS[found.format].title} tasks"]
    for title in ("rewards", "containers", "interactions"):
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
            "holds": [part.name for part in PARTS if part.name in entry.holds],
            "refuses": [part.name for part in PARTS if part.name not in entry.holds],
        }
        for entry in FORMATS.values()
    ]


def describe_catalogue() -> str:
    """The formats for people."""
    lines: list[str] = []
    for entry in FORMATS.values():
        lines.append(f"{entry.name}  ({entry.title} {entry.release})")
        lines.append(f"  reads:  {entry.reads}")
        lines.append(f"  holds:  {', '.join(part.name for part in PARTS if part.name in entry.holds)}")
        if lost := [part.name for part in PARTS if part.name not in entry.holds]:
            lines.append(f"  not yet: {', '.join(lost)}")
    return "\n".join(lines)
