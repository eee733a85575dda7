"""Terminal-Bench 1: task folders with task.yaml, as its release 0.2 reads them. They are read, and written as others.

<id>/task.yaml               what the agent is asked, limits, and what is said about the task
    /Dockerfile              the image; docker-compose.yaml beside it says how it is run, and with what other services
    /solution.sh             the reference
    /run-tests.sh, tests/    put into /tests; the task is solved where the tests pass
"""
