"""The YAML of a task: task.yaml and docker-compose.yaml, read without trusting them."""

from typing import Any

import msgspec
import yaml

from envconvert.formats import losses
from envconvert.formats.files import Tree
from envconvert.formats.losses import Kind

_LARGEST = 1 << 20  # bytes; the parser takes some seconds for these, and people write a few thousand


class DocumentError(Exception):
    """A document cannot be used. `kind` and `values` make the loss; `field` is the file, or a key in it."""

    def __init__(self, kind: Kind, field: str, **values: object) -> None:
        super().__init__(f"{field}: {kind.code}")
        self.kind = kind
        self.field = field
        self.values = values


class TaskYaml(msgspec.Struct, kw_only=True):
    """task.yaml, as far as it has an effect; the defaults are Terminal-Bench's."""

    instruction: str
    parser_name: str = "pytest"
    max_agent_timeout_sec: float = 360.0
    max_test_timeout_sec: float = 60.0
    run_tests_in_same_shell: bool = False


ABOUT = {
    *("author_name", "author_email", "difficulty", "category", "tags"),
    *("estimated_duration_sec", "expert_time_estimate_min", "junior_time_estimate_min"),
}
"""Keys of task.yaml that only say something about the task."""


def load(tree: Tree, path: str) -> dict[str, Any]:
    """The mapping in the YAML file `path`. Raises `DocumentError`."""
    content = tree.read(path)
    if len(content) > _LARGEST:
        raise DocumentError(losses.YAML_INVALID, path, value=f"it has {len(content)} bytes")
    try:
        value = yaml.load(content.decode(), _Loader)
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, AttributeError, LookupError) as error:
        why = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise DocumentError(losses.YAML_INVALID, path, value=" ".join(why.split())) from None
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise DocumentError(losses.YAML_INVALID, path, value="it is no mapping of names")
    return value


class _Loader(yaml.SafeLoader):
    """Without aliases: a few lines of them can stand for more values than fit into memory."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it has aliases (*name), which are not followed; write out what they stand for")
        return super().compose_node(parent, index)


def task_yaml(tree: Tree) -> tuple[TaskYaml, dict[str, Any]]:
    """task.yaml, and all that it says. Raises `DocumentError`."""
    said = load(tree, "task.yaml")
    try:
        return msgspec.convert(said, TaskYaml, strict=False), said
    except msgspec.ValidationError as error:
        reason, _, where = str(error).partition(" - at `$")
        field = where.rstrip("`").removeprefix(".") or "task.yaml"
        raise DocumentError(losses.YAML_VALUE, field, value=reason) from None


def plain(value: Any) -> Any:
    """`value` as metadata holds it: texts, numbers, lists and tables of them. Raises `ValueError` for all else."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, str | int | float):
        return value
    raise ValueError(f"{value!r} is no text, number, list or table")
