"""Harbor task folders as a Verifiers environment: `vf-eval THIS_PACKAGE` and `vf-validate THIS_PACKAGE` run them.

The folders under `tasks/` are Harbor's own, unchanged. The code reads them as Harbor 0.25 does and runs them through
Verifiers 0.4.0; it is the same for every taskset. Made by envconvert.
"""

from .env import FolderEnv
from .taskset import FolderTaskset

__all__ = ["FolderEnv", "FolderTaskset"]
