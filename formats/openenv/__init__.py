"""OpenEnv 0.10.0: a server package whose tasks are Harbor folders, played in containers by commands and a submission.

    openenv.yaml  pyproject.toml  README.md  .dockerignore
    __init__.py  client.py  models.py       the client's side, whose classes bear the taskset's name
    server/       app, environment, Dockerfile; runner/ (formats/harbor/runner), settings.json
    validation/runtime.json                 what `openenv validate` plays
    tasks/<id>/   Harbor task folders, carried unchanged, where `openenv harbor` finds them too
    taskset.jsonl what the task folders do not say; never in an image

The code is the same for every taskset but for the names in client.py: `package/`, copied as it stands.

Tasks that ask for a reply are written as `reply_package/`: a server that scores one by the rule of its task, with
grade.py (formats/grader). There taskset.jsonl holds the tasks, and is in the server's image.
"""
