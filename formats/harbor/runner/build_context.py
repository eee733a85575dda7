"""The name of the image that is built from a build context: another one as soon as anything in the context changes."""

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path


def image_tag(module: str, context: Path, docker_image: str | None) -> str:
    """The tag, on this machine only, of the image of `context`, or of the `docker_image` that stands for it."""
    digest = hashlib.sha256(_digest((docker_image or "").encode()))
    for entry in _entries(context, ""):
        digest.update(entry)
    # An image name allows less than a module's: lower case, no underscore at the ends, not more than two in a row.
    repository = re.sub(r"[^a-z0-9]+", "_", module.lower()).strip("_") or "tasks"
    return f"localhost/envconvert/{repository}:{digest.hexdigest()[:32]}"


def _entries(folder: Path, prefix: str) -> Iterator[bytes]:
    """A digest for each entry below `folder`: of its path, its kind, and its contents or its target."""
    for entry in sorted(os.scandir(folder), key=lambda entry: os.fsencode(entry.name)):
        name = f"{prefix}{entry.name}"
        content = b""
        if entry.is_symlink():
            kind, content = "link", _digest(os.fsencode(os.readlink(entry.path)))
        elif entry.is_dir():
            kind = "folder"
        elif entry.is_file():
            # The executable bit is all that git and wheels keep of a mode, so nothing else of it may decide.
            kind = "program" if entry.stat().st_mode & stat.S_IXUSR else "file"
            with open(entry.path, "rb") as file:
                content = hashlib.file_digest(file, "sha256").digest()
        else:
            kind = "special"
        yield _digest(b"\0".join((os.fsencode(name), kind.encode(), content)))
        if kind == "folder":
            yield from _entries(Path(entry.path), f"{name}/")


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
