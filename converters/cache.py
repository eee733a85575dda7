"""The cache folder: environments of the real frameworks, downloads from the Hub, rows of a parity that goes on."""

import os
import shutil
from pathlib import Path


def cache_folder(*parts: str) -> Path:
    """A folder in the cache, made if it is not there: below ENVCONVERT_CACHE, else XDG_CACHE_HOME, else ~/.cache."""
    own = os.environ.get("ENVCONVERT_CACHE")
    root = Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "envconvert"
    folder = root.joinpath(*parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def describe_cache() -> str:
    """A line for each thing in the cache: its size in MB, and where it is."""
    found = [item for part in sorted(cache_folder().iterdir()) for item in sorted(part.iterdir())]
    return "".join(f"{_megabytes(item):8.1f} MB  {item}\n" for item in found)


def _megabytes(item: Path) -> float:
    sizes = (os.lstat(os.path.join(place, name)).st_size for place, _, names in os.walk(item) for name in names)
    return (sum(sizes) if item.is_dir() else item.stat().st_size) / 1e6


def clear() -> None:
    """Remove the cache."""
    shutil.rmtree(cache_folder())
