"""A repository that several frameworks load: the tasks once, and beside them what each framework needs.

tasks/<id>/     every task that at least one of the formats takes, as a Harbor folder
<place>/        a format's part: what it needs beside the tasks; its place is in the catalogue, empty for the root
"""

from dataclasses import dataclass

TASKS = "tasks"


def address(name: str) -> str:
    """Where the repository ORG/NAME is on the Hub."""
    return f"https://huggingface.co/datasets/{name}"


@dataclass(frozen=True, slots=True)
class SharedTasks:
    """What a format's part must know of the tasks that it shares with the other parts of its repository."""

    left_out: tuple[str, ...]
    """Ids of tasks that are in `tasks/` for other formats, and that this one refuses: its part does not offer them."""
    sharded: bool = False
    """Whether they are in `tasks/<shard>/<id>/` (formats/harbor/runner/shards.py), as there are too many."""
