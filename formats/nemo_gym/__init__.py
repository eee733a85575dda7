"""NeMo Gym 0.7.0 (rows and config that 0.5 and later read): a Gym root, whose tasks are Harbor folders beside it.

    taskset.jsonl                              what the task folders do not say: name, reward key, sets
    README.md
    tasks/<id>/                                Harbor task folders, carried unchanged
    environments/<name>/                       config.yaml, manifest.yaml, data/: rows of what the server plays
    resources_servers/<name>/                  the server: a sandbox with bash, and the task's tests
    environments/<name>_harbor/                rows of all tasks, for Gym's own agent that runs Harbor

The server's code is the same for every taskset: `package/`, copied as it stands, with Harbor's runner below it.
"""
