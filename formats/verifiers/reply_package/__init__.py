"""Questions for a model as a Verifiers environment: `vf-eval THIS_PACKAGE` and `vf-validate THIS_PACKAGE` run them.

taskset.jsonl beside this file has the prompt of each task, and the rule that scores the reply. The code is the same for
every taskset. Made by envconvert.
"""

from .taskset import ReplyTaskset

__all__ = ["ReplyTaskset"]
