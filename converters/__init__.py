"""Convert RL environments between frameworks, say what could not be carried, and prove the rest.

`read`, `write`, `convert`, `plan`, `publish`, `check` and `parity` are the public API; they are imported when they are
first used, since `import envconvert.formats` passes through here.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from envconvert.checking import check
    from envconvert.pipeline import convert, read, write
    from envconvert.planning import plan
    from envconvert.publishing import publish
    from envconvert.scoring import parity

__all__ = ["__version__", "check", "convert", "parity", "plan", "publish", "read", "write"]

_HOMES = {
    "read": "pipeline",
    "write": "pipeline",
    "convert": "pipeline",
    "plan": "planning",
    "publish": "publishing",
    "check": "checking",
    "parity": "scoring",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("envconvert")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"envconvert.{_HOMES[name]}"), name)
