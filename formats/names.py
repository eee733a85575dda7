"""Names that must be known before anything is imported: of the formats, of tasksets, and of the code made for one."""

import keyword
import re
import sys

TARGETS = ("harbor", "verifiers", "openenv", "nemo-gym")
"""The formats that can be written, as the command line spells them: those of frameworks that can be asked."""

NAMES = (*TARGETS, "terminal-bench", "table")
"""The formats that can be read."""


def is_taskset_name(name: str) -> bool:
    """Whether `name` is ORG/NAME as Harbor and the Hub take it: ASCII letters, digits, `-`, `_` and `.`."""
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", name, re.ASCII) is not None and ".." not in name


def folder_name(id: str) -> str:
    """The folder of a task whose id is a row's: `--` for `/`, and `-` for what is no letter, digit, `_`, `.` or `-`."""
    return re.sub(r"[^\w.-]", "-", id.replace("/", "--")).lstrip(".-") or "task"


# A module of one of these names would hide, or be hidden by, what a framework or Python imports under it.
_BUILT_IN = {"harbor", "nemo_gym", "openenv", "textarena", "verifiers", "pydantic", "datasets", "openai", "envconvert"}
_LIBRARY = set(sys.stdlib_module_names) | {
    # in some of Python 3.11 to 3.14 only: the same name is prefixed on all of them
    *(
        "_zstd",
        "aifc",
        "annotationlib",
        "asynchat",
        "asyncore",
        "audioop",
        "cgi",
        "cgitb",
        "chunk",
        "compression",
        "crypt",
    ),
    *("distutils", "imghdr", "imp", "mailcap", "msilib", "nis", "nntplib", "ossaudiodev", "pipes", "smtpd", "sndhdr"),
    *("spwd", "sunau", "telnetlib", "uu", "xdrlib", "lib2to3"),
    "test",  # part of the library, and in no list of it
}


def module_name(name: str) -> str:
    """The module of the taskset ORG/NAME: NAME in lower case with `_`, prefixed `env_` where that name is taken."""
    module = re.sub(r"[^a-z0-9_]", "_", name.rpartition("/")[2].lower())
    if not module.isidentifier() or keyword.iskeyword(module) or module in _BUILT_IN | _LIBRARY:
        return f"env_{module}"
    return module
