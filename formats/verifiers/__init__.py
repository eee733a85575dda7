"""Verifiers 0.4.0 (v1): a package that pip installs, whose tasks are Harbor folders beside the module.

    pyproject.toml
    README.md
    <module>/__init__.py        exports one Taskset and one Env
            /taskset.jsonl      what the task folders do not say: name, reward key
            /runner/            runs a task folder in containers (formats/harbor/runner)
            /tasks/<id>/        Harbor task folders, carried unchanged

The module's code is the same for every taskset: `package/` and the runner, copied as they stand.
"""
