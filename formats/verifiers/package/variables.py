"""`${VAR}` and `${VAR:-default}` in the env tables of a task.toml, resolved on this machine at run time."""

import os
import re
from collections.abc import Mapping

# The whole value or nothing: "pre-${VAR}" stays as written (harbor utils/env.py).
_TEMPLATE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}")


def resolve(table: str, values: Mapping[str, str]) -> dict[str, str]:
    """The values of the table named `table` (such as `verifier.env`), templates replaced.

    A default counts only where the variable is unset; an empty one is a value.

    Raises:
        LookupError: a variable is neither set nor has a default.
    """
    resolved = {}
    for name, value in values.items():
        match = _TEMPLATE.fullmatch(value)
        if match is None:
            resolved[name] = value
            continue
        variable, default = match.groups()
        found = os.environ.get(variable, default)
        if found is None:
            raise LookupError(
                f"{variable} is not set, and [{table}] {name} = {value!r} of task.toml needs it; export it"
            )
        resolved[name] = found
    return resolved
