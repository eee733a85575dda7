"""The digest by which Harbor names a task's content in dataset.toml (harbor/publisher/packager.py of 0.25.0).

SHA-256 over the lines `path NUL sha256-of-content LF` of the files that Harbor publishes, sorted by path. Modes and
empty folders do not count.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping

from pathspec import GitIgnoreSpec, PathSpec

from envconvert.formats.files import Tree

_SINGLE = ("task.toml", "instruction.md", "README.md", "trajectory.json")
_FOLDERS = ("environment", "tests", "solution", "steps")
_DEFAULT_IGNORES = ("__pycache__/", "*.pyc", ".DS_Store", "*.swp", "*.swo", "*~")  # a task's .gitignore replaces them
_IGNORE_FILE = ".harborignore"
_SCOPES = GitIgnoreSpec.from_lines(("/tests/", "/solution/", "/steps/*/tests/", "/steps/*/solution/"))


def package_digest(tree: Tree, contents: Mapping[str, str] = {}) -> str:
    """`sha256:<64 hex>` of the task folder `tree`; `contents` is the SHA-256 by path of what need not be read again.

    Raises `ValueError` or `OSError` where Harbor has none either: for a name that is not UTF-8, and for an ignore file
    that is no text.
    """
    whole = hashlib.sha256()
    for path in published(tree):
        content = contents.get(path)
        if content is None:
            with open(tree.root / path, "rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
        whole.update(f"{path}\0{content}\n".encode())
    return f"sha256:{whole.hexdigest()}"


def published(tree: Tree) -> list[str]:
    """The files that Harbor publishes, sorted by path."""
    dropped: Callable[[str], bool] = _default_drops
    if tree.holds(".gitignore"):
        dropped = PathSpec.from_lines("gitignore", (tree.root / ".gitignore").read_text().splitlines()).match_file
    excluded = excluder(tree)
    return sorted(path for path in _candidates(tree) if not excluded(path) and not dropped(path))


_DEFAULT = PathSpec.from_lines("gitignore", _DEFAULT_IGNORES)
_SUSPECT = re.compile(r"__pycache__|\.(pyc|DS_Store|sw[op])|~")


def _default_drops(path: str) -> bool:
    """Whether the rules that hold without a .gitignore drop `path`: for most, a look shows that none can."""
    return _SUSPECT.search(path) is not None and _DEFAULT.match_file(path)


def _candidates(tree: Tree) -> Iterator[str]:
    """Files in the places that Harbor looks at; a link counts where it leads to a file."""
    yield from filter(tree.is_file, _SINGLE)
    for folder in _FOLDERS:
        inner = tree.below(folder) or Tree(tree.root, ())
        for entry in inner.entries:
            if entry.kind == "file" or (entry.kind == "link" and inner.is_file(entry.path)):
                yield f"{folder}/{entry.path}"


def ignore_files(tree: Tree) -> list[str]:
    """Paths of the .harborignore files that Harbor heeds."""
    return [
        entry.path
        for entry in tree.entries
        if entry.kind != "folder" and entry.path.endswith(f"/{_IGNORE_FILE}") and _SCOPES.match_file(entry.path)
    ]


def excluder(tree: Tree) -> Callable[[str], bool]:
    """Whether .harborignore keeps a path out, or what a link there leads to."""
    if not ignore_files(tree) and not tree.has_links:
        return lambda path: path.rpartition("/")[2] == _IGNORE_FILE
    matches = _matcher(tree)
    real_root = tree.root.resolve()

    def excluded(path: str) -> bool:
        real = (tree.root / path).resolve()
        return matches(path) or (real.is_relative_to(real_root) and matches(real.relative_to(real_root).as_posix()))

    return excluded


def _matcher(tree: Tree) -> Callable[[str], bool]:
    """Whether the rules of the folders above a path match it or one of those folders, the deepest rule last."""
    specs = {
        path.rpartition("/")[0]: GitIgnoreSpec.from_lines((tree.root / path).read_text().splitlines())
        for path in ignore_files(tree)
    }

    def matches(path: str) -> bool:
        if path.rpartition("/")[2] == _IGNORE_FILE:
            return True
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            here = "/".join(parts[:depth]) + ("/" if depth < len(parts) else "")
            verdict = False
            for folder, spec in specs.items():  # shallow before deep: entries are sorted
                if here.startswith(f"{folder}/") and here != f"{folder}/":
                    found = spec.check_file(here.removeprefix(f"{folder}/")).include
                    verdict = verdict if found is None else found
            if verdict:
                return True
        return False

    return matches
