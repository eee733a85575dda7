"""Runs in Verifiers' environment: loads the taskset named by its module and prints the ids of its tasks.

One JSON object a line: an id, or the error on which the load as a whole ended. A task that the package leaves out is
told by its logger, as a line with an error.
"""

import json
import logging
import sys

import verifiers.v1 as vf


class Reports(logging.Handler):
    """Prints what the package says of the tasks that it leaves out."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one warning."""
        tell(error=record.getMessage())


def tell(**fields: str) -> None:
    """Print one line."""
    print(json.dumps(fields), flush=True)


module = sys.argv[1]
logging.getLogger(module).addHandler(Reports())
try:
    config = vf.taskset_config_type(module).model_validate({"id": module})
    for task in vf.load_taskset(config):
        tell(id=task.data.id)
except Exception as error:  # whatever a package raises is why it does not load
    tell(error=f"{type(error).__name__}: {error}")
