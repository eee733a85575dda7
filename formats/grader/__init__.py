"""The portable grader: one stand-alone program that scores a reply by a rule (rules.py); every layout ships it."""

from functools import cache
from importlib.resources import files


@cache
def program() -> bytes:
    """The program, as it is shipped."""
    return (files(__package__) / "grade.py").read_bytes()
