"""The taskset written as a Verifiers package."""

import json
import keyword
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import tomli_w
from jinja2 import Environment, StrictUndefined

from envconvert.formats.files import Target
from envconvert.formats.harbor.writer import write_folder
from envconvert.formats.losses import Ledger, Loss
from envconvert.formats.taskset import Task, Taskset
from envconvert.formats.verifiers import fidelity

_RELEASE = "0.4.0"

# A module of one of these names would hide, or be hidden by, what Verifiers or Python imports under it.
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


def losses_of(task: Task, taskset: Taskset) -> Iterator[Loss]:
    """What `task` loses besides its parts."""
    return fidelity.losses_of(task)


def write_task(task: Task, taskset: Taskset, target: Target, ledger: Ledger) -> str | None:
    """Write `task` to the package's `tasks/<id>/`; its id."""
    folder = write_folder(task, target, f"{module_name(taskset.name)}/tasks/{task.id}", ledger)
    return None if folder is None else task.id


def write_rest(taskset: Taskset, target: Target, ledger: Ledger, written: Iterable[str]) -> None:
    """Write the package around its tasks."""
    module = module_name(taskset.name)
    ids = iter(written)
    example = next(ids, "")
    for _ in ids:  # all must be written before they are counted
        pass
    package = files(__package__) / "package"
    for source in _sources(package):
        target.write(f"{module}/{source.name}", source.read_bytes())
    target.write(f"{module}/taskset.jsonl", _header(taskset))
    values: dict[str, Any] = {
        "name": taskset.name,
        "module": module,
        "distribution": module.replace("_", "-"),
        "version": _version(taskset.version),
        "description": _one_line(taskset.description) or f"{taskset.name} for Verifiers.",
        "release": _RELEASE,
        "tasks": ledger.written,
        "example": example,
        "repository": re.sub(r"[^a-z0-9]+", "_", module).strip("_"),  # as package/build_context.py names images
        "reward_key": taskset.reward.key,
    }
    for name in ("pyproject.toml", "README.md"):
        template = (package / f"{name}.jinja").read_text("utf-8")
        target.write(name, _ENVIRONMENT.from_string(template).render(values))


_ENVIRONMENT = Environment(undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True, autoescape=False)
_ENVIRONMENT.filters["toml"] = lambda text: tomli_w.dumps({"_": text}).removeprefix("_ = ").rstrip("\n")


def _sources(package: Traversable) -> list[Traversable]:
    return sorted((item for item in package.iterdir() if item.name.endswith(".py")), key=lambda item: item.name)


def _header(taskset: Taskset) -> str:
    header = {
        "name": taskset.name,
        "version": taskset.version,
        "description": taskset.description,
        "licence": taskset.licence,
        "authors": [{"name": author.name, "email": author.email} for author in taskset.authors],
        "keywords": list(taskset.keywords),
        "reward_key": taskset.reward.key,
    }
    return json.dumps(header, ensure_ascii=False) + "\n"


def _version(version: str | None) -> str:
    """A version that pip takes: the taskset's own where it is one."""
    return (
        version if version and re.fullmatch(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?", version) else "0.1.0"
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())
