"""Who an agent runs as. Harbor takes a uid, verifiers only a name of the image's /etc/passwd (rollout.py)."""

import asyncio
from functools import cache

from .runner.docker import docker_now
from .runner.folder import Turn
from .runner.images import ImageError


async def user_name(image: str, turn: Turn) -> str | None:
    """The name of the user that the agent of `turn` runs as in `image`, which is on this machine; None: the image's.

    Raises:
        ImageError: the image has no such user.
    """
    user = None if turn.user is None else str(turn.user)
    if user is not None and user.isdecimal():
        return await asyncio.to_thread(_name, image, user)
    return user


@cache
def _name(image: str, uid: str) -> str:
    result = docker_now("run", "--rm", "--network", "none", "--entrypoint", "cat", image, "/etc/passwd")
    if result.returncode != 0:
        raise ImageError(f"/etc/passwd of the image {image} cannot be read: {result.stderr.strip()}")
    for line in result.stdout.splitlines():
        user, _, number, *_ = f"{line}:::".split(":")
        if number == uid:
            return user
    raise ImageError(
        f"[agent].user = {uid} of task.toml is no user of the image {image}; verifiers runs an agent only as a user of "
        f"/etc/passwd with a home folder: add one to the Dockerfile (useradd --create-home --uid {uid} NAME)"
    )
