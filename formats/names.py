"""Names that must be known before anything is imported: those of the formats, and what a taskset may be called."""

import re

TARGETS = ("harbor", "verifiers")
"""The formats that can be written, as the command line spells them: those of frameworks that can be asked."""

NAMES = (*TARGETS, "terminal-bench")
"""The formats that can be read."""


def is_taskset_name(name: str) -> bool:
    """Whether `name` is ORG/NAME as Harbor and the Hub take it: ASCII letters, digits, `-`, `_` and `.`."""
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", name, re.ASCII) is not None and ".." not in name
