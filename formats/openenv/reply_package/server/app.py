"""What is served: `uvicorn server.app:app` in the package's folder, or `python -m server.app`."""

import argparse
import os

import uvicorn
import yaml
from openenv.core.env_server.http_server import create_app

from .environment import ReplyEnvironment
from .models import ReplyAction, ReplyObservation, ReplyState
from .tasks import ROOT, catalogue

SESSIONS = 64
"""How many sessions are let in at once where MAX_CONCURRENT_ENVS does not say."""

catalogue()  # the file is read at once: no request waits for that
app = create_app(
    ReplyEnvironment,
    ReplyAction,
    ReplyObservation,
    env_name=yaml.safe_load((ROOT / "openenv.yaml").read_text(encoding="utf-8"))["name"],
    max_concurrent_envs=int(os.environ.get("MAX_CONCURRENT_ENVS", SESSIONS)),
    state_cls=ReplyState,
)


def main() -> None:
    """Serve on a port of this machine."""
    parser = argparse.ArgumentParser(description="Serve the tasks of this package.")
    parser.add_argument("--host", default="127.0.0.1", help="0.0.0.0 in a container")
    parser.add_argument("--port", type=int, default=8000)
    chosen = parser.parse_args()
    uvicorn.run(app, host=chosen.host, port=chosen.port)


if __name__ == "__main__":
    main()
