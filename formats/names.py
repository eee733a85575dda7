"""Names that must be known before anything is imported: of the formats, of tasksets, and of the code made for one."""

import hashlib
import keyword
import re
import sys
from collections import Counter

TARGETS = ("harbor", "verifiers", "openenv", "nemo-gym")
"""The formats that can be written, as the command line spells them: those of frameworks that can be asked."""

NAMES = (*TARGETS, "terminal-bench", "table")
"""The formats that can be read."""


def is_taskset_name(name: str) -> bool:
    """Whether `name` is ORG/NAME as Harbor and the Hub take it: ASCII letters, digits, `-`, `_` and `.`."""
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", name, re.ASCII) is not None and ".." not in name


def folder_name(id: str) -> str:
    """The folder of a task whose id is a row's: `--` for `/`, and `-` for what is no letter, digit, `_`, `.` or `-`.

    Of more than 200 bytes, the beginning, and 12 digits of the SHA-256 of the id.
    """
    name = re.sub(r"[^\w.-]", "-", id.replace("/", "--")).lstrip(".-") or "task"
    if len(name.encode("utf-8", "surrogatepass")) <= ID_BYTES:
        return name
    digits = hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{name.encode()[: ID_BYTES - len(digits) - 1].decode(errors='ignore')}-{digits}"


ID_BYTES = 200
"""The most bytes of an id that is the name of a folder: room is left for the suffixes that frameworks add to it."""


class Apart:
    """Tells ids apart as they come: the second of an id ends in `-2`, and none is given twice."""

    def __init__(self) -> None:
        self._repeats: Counter[str] = Counter()
        self._taken: set[str] = set()

    def __call__(self, first: str) -> str:
        """The id for what would be `first`."""
        id = first
        while id in self._taken:
            self._repeats[first] += 1
            id = f"{first}-{self._repeats[first] + 1}"
        self._taken.add(id)
        return id


def local_name(base: str) -> str:
    """`local/` and the name of a folder, with what Harbor allows in a dataset's name."""
    return "local/" + (re.sub(r"[^A-Za-z0-9._-]+|\.\.+", "-", base).strip("-._") or "tasks")


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
