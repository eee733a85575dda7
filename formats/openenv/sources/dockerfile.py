"""The Dockerfile of a server: where it is, what it copies, and what it listens on. Nothing is built."""

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from typing import Any

import msgspec

from envconvert.formats.files import Tree, UnreadableSourceError
from envconvert.formats.openenv.sources.manifest import Manifest

PORT = 8000
"""What OpenEnv's own client and providers expect a server to listen on."""

_PLACES = ("server/Dockerfile", "Dockerfile")
"""Where `openenv build` looks, in order."""
_LARGEST = 1 << 16  # bytes; people write a few thousand


class Dockerfile(msgspec.Struct, frozen=True):
    """What the image of a server is made of, as far as the text says."""

    path: str
    context: str
    """The folder of the package that is the build context, empty for all of it."""
    port: int
    serves: str | None
    """MODULE:ATTRIBUTE of the server, where the command names it."""
    outside: tuple[str, ...]
    """What it copies that is not in the context: it is then built from a folder above the package."""


def dockerfile(files: Tree, manifest: Manifest) -> Dockerfile | None:
    """The Dockerfile of the package; None where it has none. Raises `UnreadableSourceError`."""
    said = manifest.validation.execution if manifest.validation else None
    places = (said.dockerfile, *_PLACES) if said else _PLACES
    path = next((place for place in places if files.is_file(place)), None)
    if path is None:
        return None
    context = said.context.strip("/").removeprefix("./").removeprefix(".") if said else ""
    try:
        content = files.read(path)
        if len(content) > _LARGEST:
            raise UnreadableSourceError(files.root / path, f"it has {len(content)} bytes, too many for a Dockerfile")
        lines = list(_instructions(content.decode("utf-8-sig")))
    except UnicodeDecodeError as error:
        raise UnreadableSourceError(files.root / path, f"it is not UTF-8: {error}; save it as UTF-8") from None
    except OSError as error:
        raise UnreadableSourceError(files.root / path, str(error.strerror)) from None
    command = next((text for name, text in reversed(lines) if name in ("CMD", "ENTRYPOINT")), "")
    exposed = [text for name, text in lines if name == "EXPOSE"]
    serves = re.search(r"\b([A-Za-z_][\w.]*:[A-Za-z_]\w*)", command)
    return Dockerfile(
        path=path,
        context=context,
        port=_port(command, exposed),
        serves=serves[1] if serves else None,
        outside=tuple(_outside(files, context, lines)),
    )


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    """The instructions with what follows them, continued lines put together and here-documents left out."""
    waiting = iter(text.splitlines())
    for line in waiting:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        whole = line
        while whole.rstrip().endswith("\\"):
            following = next(waiting, None)
            if following is None:
                break
            if not following.lstrip().startswith("#"):
                whole = f"{whole.rstrip()[:-1]} {following.strip()}"
        for mark in re.findall(r"<<-?[\"']?([A-Za-z_]\w*)", whole):
            for inner in waiting:
                if inner.strip() == mark:
                    break
        name, _, rest = whole.strip().partition(" ")
        yield name.upper(), rest.strip()


def _port(command: str, exposed: list[str]) -> int:
    patterns = (r"--port[\s\",=]+\"?(?:\$\{\w+:-)?(\d{2,5})", r"(?:0\.0\.0\.0|127\.0\.0\.1):(\d{2,5})")
    places: list[Any] = [re.search(pattern, command) for pattern in patterns]
    places += [re.match(r"(\d{2,5})", text) for text in exposed]
    return next((int(found[1]) for found in places if found), PORT)


def _outside(files: Tree, context: str, lines: list[tuple[str, str]]) -> Iterator[str]:
    """What is copied and is not there."""
    for name, text in lines:
        if name not in ("COPY", "ADD") or "--from=" in text or "<<" in text:
            continue
        words = re.findall(r'"([^"]*)"', text) if text.lstrip().startswith("[") else text.split()
        for word in [word for word in words if not word.startswith("--")][:-1]:
            if "://" in word or "$" in word:
                continue
            place = "/".join(part for part in (context, word.strip("/").removeprefix("./").removeprefix(".")) if part)
            if place and not _is_there(files, place):
                yield word


def _is_there(files: Tree, place: str) -> bool:
    if not re.search(r"[*?\[]", place):
        return files.holds(place)
    return any(fnmatch(entry.path, place) for entry in files.entries)
