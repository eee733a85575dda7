""".harborignore: what of tests/ and solution/ stays outside of the container (harbor models/task/file_filter.py)."""

from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

NAME = ".harborignore"


def has_ignores(folder: Path) -> bool:
    """Whether a .harborignore stands anywhere below `folder`."""
    return next(folder.rglob(NAME), None) is not None


def excluder(task: Path, folder: Path) -> Callable[[Path], bool]:
    """Whether a path below `folder`, which is tests/ or solution/ of `task` or of one of its steps, is left out.

    Rules are gitignore's; those of deeper folders come after, and so above, those of the folders around them. A link is
    also left out where what it leads to is.
    """
    if not has_ignores(folder):
        return lambda path: False
    from pathspec import GitIgnoreSpec

    root = task.resolve()
    scope = folder.resolve()
    specs = {
        path.parent.resolve(): GitIgnoreSpec.from_lines(path.read_text(encoding="utf-8").splitlines())
        for path in sorted(folder.rglob(NAME), key=lambda path: len(path.parts))
    }

    def matches(path: Path) -> bool:
        if path.name == NAME:
            return True
        for part in _downwards(path, scope):
            suffix = "/" if part != path or path.is_dir() else ""
            excluded = False
            for place, spec in specs.items():
                if place != part and part.is_relative_to(place):
                    found = spec.check_file(PurePosixPath(part.relative_to(place)).as_posix() + suffix).include
                    excluded = excluded if found is None else found
            if excluded:
                return True
        return False

    def excluded(path: Path) -> bool:
        here = path.parent.resolve() / path.name
        real = path.resolve()
        return matches(here) or (real != here and real.is_relative_to(root) and matches(real))

    return excluded


def _downwards(path: Path, scope: Path) -> Iterator[Path]:
    """`path` and the folders around it below `scope`, the outermost first."""
    if path.is_relative_to(scope):
        inside = path.relative_to(scope)
        yield from (scope / part for part in reversed([inside, *inside.parents][:-1]))
