"""What is served: `uvicorn server.app:app` in the package's folder, or `python -m server.app`."""

import argparse
import atexit
import os

import uvicorn
from fastapi import FastAPI
from openenv.core.env_server.http_server import create_app

from . import in_place
from .environment import DockerEnvironment, FolderEnvironment, LocalEnvironment
from .in_docker import remove_all
from .models import ContainerAction, ContainerObservation, ContainerState
from .runner.launch import answers
from .tasks import settings

GRACE_SECONDS = 5
"""How long a step may still take when the server is told to stop."""

SESSIONS = 8
"""How many containers may be in use at once where MAX_CONCURRENT_ENVS does not say."""


def sessions(environment: type[FolderEnvironment]) -> int:
    """How many sessions are let in."""
    if not environment.SUPPORTS_CONCURRENT_SESSIONS:
        return 1
    return int(os.environ.get("MAX_CONCURRENT_ENVS", SESSIONS))


def make_app(environment: type[FolderEnvironment]) -> FastAPI:
    """The application that serves `environment`, whose tasks are read at once: no request waits for that."""
    environment.catalogue()
    made: FastAPI = create_app(
        environment,
        ContainerAction,
        ContainerObservation,
        env_name=settings().package,
        max_concurrent_envs=sessions(environment),
        state_cls=ContainerState,
    )
    made.router.on_shutdown.append(remove_all)
    return made


def environment_class() -> type[FolderEnvironment]:
    """How tasks are played: by Docker, or where none answers and this is the package's own image, in this container."""
    return LocalEnvironment if in_place.is_own_image() and not answers() else DockerEnvironment


app = make_app(environment_class())
atexit.register(remove_all)  # where it is stopped while a step is under way


def main() -> None:
    """Serve on a port of this machine."""
    parser = argparse.ArgumentParser(description="Serve the tasks of this package.")
    parser.add_argument("--host", default="127.0.0.1", help="0.0.0.0 in a container")
    parser.add_argument("--port", type=int, default=8000)
    chosen = parser.parse_args()
    uvicorn.run(app, host=chosen.host, port=chosen.port, timeout_graceful_shutdown=GRACE_SECONDS)


if __name__ == "__main__":
    main()
