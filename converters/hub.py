"""Sources on the Hugging Face Hub, brought to this machine."""

import logging
import re
from pathlib import Path

from envconvert.formats.files import UnreadableSourceError
from envconvert.formats.losses import printable

_ADDRESS = re.compile(r"hf://datasets/(?P<name>[^/@]+/[^/@]+)(@(?P<revision>[^/]+))?(/(?P<path>.+))?")
_FILES = (".json", ".parquet")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def local_copy(source: str | Path) -> tuple[Path, str, str | None]:
    """The folder or file of `source` on this machine, its address, and the commit where it is on the Hub.

    A path that exists is taken as it is. Raises `UnreadableSourceError`.
    """
    if isinstance(source, str) and (match := _ADDRESS.fullmatch(source)):
        return _download(source, match["name"], match["revision"], match["path"])
    place = Path(source)
    if place.is_file() and place.suffix not in _FILES:
        raise UnreadableSourceError(
            source, "it is a file; name the folder of the tasks, a registry.json or a .parquet file"
        )
    if place.exists():
        return place.resolve(), printable(place.resolve().name), None
    if isinstance(source, str) and _NAME.fullmatch(source):
        return _download(f"hf://datasets/{source}", source, None, None)
    raise UnreadableSourceError(
        source, "there is no such folder; a Hub repository is ORG/NAME or hf://datasets/ORG/NAME"
    )


def _download(address: str, name: str, revision: str | None, path: str | None) -> tuple[Path, str, str | None]:
    """Fetch a dataset into a folder of our cache named by its commit: real files, where the Hub's cache has links."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    from envconvert.cache import cache_folder

    if path is not None and ".." in path.split("/"):
        raise UnreadableSourceError(address, "a path in a dataset has no `..`")
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # what it would warn of is an error here
    try:
        commit = HfApi().dataset_info(name, revision=revision).sha or "main"
        folder = cache_folder("hub", name.replace("/", "--"), commit)
        wanted = None if path is None else [path, f"{path}/**"]
        snapshot_download(name, repo_type="dataset", revision=commit, local_dir=folder, allow_patterns=wanted)
    except RepositoryNotFoundError:
        reason = "there is no such folder here, and no such dataset on the Hub that may be read"
        raise UnreadableSourceError(address, reason) from None
    except RevisionNotFoundError:
        raise UnreadableSourceError(address, f"the dataset has no revision {revision!r}") from None
    except Exception as error:  # its HTTP client's own exceptions come through, whichever client that is
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UnreadableSourceError(address, f"the Hub did not give it: {reason}") from None
    place = folder / path if path else folder
    if not place.exists():
        raise UnreadableSourceError(address, f"the dataset has no {path!r} at {commit}")
    return place, address, commit
