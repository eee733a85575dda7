"""Harbor task folders as a resources server of NeMo Gym: a sandbox with bash, and the task's own tests.

The folders under `tasks/` are Harbor's own, unchanged. The code reads them as Harbor 0.25 does and runs them through
Gym's sandbox API; it is the same for every taskset. Made by envconvert.
"""
