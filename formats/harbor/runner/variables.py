"""`${VAR}` and `${VAR:-default}` in the env tables and headers of a task.toml, resolved on this machine at run time."""

import os
import re
from collections.abc import Mapping

# The whole value or nothing: "pre-${VAR}" stays as written (harbor utils/env.py).
_TEMPLATE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}")
# In a header it may stand anywhere.
_EMBEDDED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def resolve(table: str, values: Mapping[str, str]) -> dict[str, str]:
    """The values of the table named `table` (such as `verifier.env`), templates replaced.

    A default counts only where the variable is unset; an empty one is a value.

    Raises:
        LookupError: a variable is neither set nor has a default.
    """
    resolved = {}
    for name, value in values.items():
        match = _TEMPLATE.fullmatch(value)
        resolved[name] = value if match is None else _value(match, f"[{table}] {name} = {value!r}")
    return resolved


def fill(text: str, where: str) -> str:
    """`text` with every template in it replaced; `where` names it in an error. Raises as `resolve` does."""
    return _EMBEDDED.sub(lambda match: _value(match, where), text)


def _value(match: re.Match[str], where: str) -> str:
    variable, default = match.groups()
    found = os.environ.get(variable, default)
    if found is None:
        raise LookupError(f"{variable} is not set, and {where} of task.toml needs it; export it")
    return str(found)
