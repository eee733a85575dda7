"""The arrow: `envconvert harbor->verifiers SRC DST`, in every spelling, unquoted in a shell too."""

import os
import re
import stat
import sys
from collections.abc import Collection
from pathlib import Path

_ARROW = re.compile(r"([\w-]+?)(?:->|:|-to-)([\w,-]+)")


class ArrowError(Exception):
    """An arrow that cannot be followed; the message says what to type."""


class Arrow:
    """A command line with its arrow resolved. `unquoted` is set where the shell took the arrow for a redirection."""

    def __init__(self, arguments: list[str], *, unquoted: bool) -> None:
        self.arguments = arguments
        self.unquoted = unquoted


def resolve(arguments: list[str], formats: Collection[str], stdout: int) -> Arrow:
    """Rewrite a leading arrow as `convert --from A --to B`.

    Without quotes the shell opens a file named B, makes it file descriptor `stdout`, and passes `A-`. Where that is
    what happened, the empty file is removed. Raises `ArrowError`.
    """
    first = arguments[0] if arguments else ""
    if match := _ARROW.fullmatch(first):
        source, target = match[1], match[2]
        unknown = [name for name in [source, *target.split(",")] if name not in formats]
        if unknown:
            raise ArrowError(f"{first}: {', '.join(unknown)} is no format; there are {', '.join(sorted(formats))}")
        return Arrow(["convert", "--from", source, "--to", target, *arguments[1:]], unquoted=False)
    if first.endswith("-") and first[:-1] in formats:
        target = _take_back(formats, stdout)
        return Arrow(["convert", "--from", first[:-1], "--to", target, *arguments[1:]], unquoted=True)
    return Arrow(arguments, unquoted=False)


def _take_back(formats: Collection[str], stdout: int) -> str:
    """The format whose name standard output was redirected to; removes that file if it is empty."""
    try:
        here = os.fstat(stdout)
    except OSError:  # it is closed
        formats = ()
    for name in formats:
        path = Path(name)
        try:
            there = path.lstat()
        except OSError:
            continue
        if stat.S_ISREG(there.st_mode) and os.path.samestat(here, there):
            if there.st_size == 0:
                path.unlink()
            return name
    raise ArrowError(f"{sys.argv[1]}: quote the arrow, as in 'harbor->verifiers', so that the shell leaves it alone")
