"""Reads a task.toml as Harbor 0.25.0 does, and says what Harbor leaves unsaid.

`read` checks a file against the schema in tables.py and Harbor's own rules, and names what is wrong by its key path.
Harbor drops keys that it does not know without a word; `read` returns them, so that they can be reported.
"""

import ipaddress
import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import PurePosixPath
from typing import Any, get_args, get_type_hints

import msgspec
import tomli

from envconvert.formats import losses
from envconvert.formats.files import folded
from envconvert.formats.harbor.tables import (
    AgentTable,
    ArtifactTable,
    EnvironmentTable,
    Table,
    TaskTable,
    VerifierTable,
)
from envconvert.formats.losses import Kind
from envconvert.formats.names import is_taskset_name


class ConfigError(Exception):
    """task.toml says something that Harbor refuses. `kind` and `values` make the loss; `field` is the key path."""

    def __init__(self, kind: Kind, field: str, **values: object) -> None:
        super().__init__(f"{field}: {kind.code}")
        self.kind = kind
        self.field = field
        self.values = values


class Config(msgspec.Struct):
    """What `read` makes of a task.toml."""

    table: TaskTable
    unknown: dict[str, Any]
    """Values by key path of what Harbor ignores."""
    ignored_sizes: dict[str, Any]
    """`memory` and `storage` that are numbers, by key path: Harbor takes only strings, and drops the rest."""


def read(content: bytes) -> Config:
    """Check a task.toml. Raises `ConfigError` where Harbor would not load it."""
    raw = _parse(content)
    if "version" in raw:  # the spelling before schema 1.1; like Harbor, the new key wins
        version = raw.pop("version")
        raw.setdefault("schema_version", version)
    ignored: dict[str, Any] = {}
    for path, environment in _environments(raw):
        _modernise(environment, path, ignored)
    unknown = dict(_unknown(raw, TaskTable, ""))
    try:
        table = msgspec.convert(raw, TaskTable, strict=False)
    except msgspec.ValidationError as error:
        reason, _, where = str(error).partition(" - at `$")
        field = where.rstrip("`").removeprefix(".")
        field, value = _offender(raw, field)
        raise ConfigError(losses.VALUE_TYPE, field, reason=reason.replace("`", ""), value=value) from None
    _check(table)
    return Config(table=table, unknown=unknown, ignored_sizes=ignored)


def _parse(content: bytes) -> dict[str, Any]:
    if content.startswith(b"\xef\xbb\xbf"):
        raise ConfigError(losses.CONFIG_BOM, "task.toml")
    try:
        return tomli.loads(content.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(losses.CONFIG_ENCODING, "task.toml", value=content[error.start : error.end]) from None
    except (ValueError, RecursionError) as error:  # a ValueError that is no TOMLDecodeError: Python refuses the number
        raise ConfigError(losses.CONFIG_SYNTAX, "task.toml", value=str(error) or "nested too deep") from None


def _environments(raw: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Every table that has the schema of [environment], with its key path."""
    found = [("environment", raw.get("environment"))]
    verifiers = [("verifier", raw.get("verifier"))]
    steps = raw.get("steps")
    for number, step in enumerate(steps if isinstance(steps, list) else []):
        if isinstance(step, dict):
            verifiers.append((f"steps[{number}].verifier", step.get("verifier")))
    found += [(f"{path}.environment", v.get("environment")) for path, v in verifiers if isinstance(v, dict)]
    return [(path, table) for path, table in found if isinstance(table, dict)]


def _modernise(table: dict[str, Any], path: str, ignored: dict[str, Any]) -> None:
    """Rewrite the spellings that Harbor still takes into today's keys, as its validators do."""
    for key in ("memory", "storage"):
        if key not in table:
            continue
        value = table.pop(key)
        if not isinstance(value, str):
            ignored[f"{path}.{key}"] = value
            continue
        size = _mebibytes(value, f"{path}.{key}")
        given = table.setdefault(f"{key}_mb", size)
        if given != size:
            raise ConfigError(losses.SIZE_CONFLICT, f"{path}.{key}", value=value, other=f"{key}_mb = {given!r}")
    allow = table.pop("allow_internet", None)
    if allow is not None and not isinstance(allow, bool):
        raise ConfigError(
            losses.VALUE_TYPE, f"{path}.allow_internet", reason="Harbor expects true or false", value=allow
        )
    if allow is not None and "network_mode" not in table and "allowed_hosts" not in table:
        table["network_mode"] = "public" if allow else "no-network"
    if isinstance(table.get("os"), str):
        table["os"] = table["os"].lower()
    servers = table.get("mcp_servers")
    for server in servers if isinstance(servers, list) else []:
        if isinstance(server, dict) and server.get("transport") == "http":
            server["transport"] = "streamable-http"


_UNITS = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}


def _mebibytes(text: str, field: str) -> int:
    size = text.strip().upper()
    try:
        return int(float(size[:-1]) * _UNITS[size[-1:]])
    except (KeyError, ValueError, OverflowError):
        raise ConfigError(losses.SIZE_INVALID, field, value=text) from None


def _unknown(raw: Mapping[str, Any], table: type[Table], path: str) -> list[tuple[str, Any]]:
    """Keys of `raw` that `table` has not, with their key paths, nested tables included."""
    fields = _fields(table)
    found: list[tuple[str, Any]] = []
    for key, value in raw.items():
        here = f"{path}.{key}" if path else key
        if key not in fields:
            found.append((here, value))
        elif inner := fields[key]:
            for number, item in enumerate(value if isinstance(value, list) else [value]):
                if isinstance(item, dict):
                    found += _unknown(item, inner, f"{here}[{number}]" if isinstance(value, list) else here)
    return found


@cache
def _fields(table: type[Table]) -> dict[str, type[Table] | None]:
    """The keys of `table`, each with the table that it, or each entry of its list, is; None for a plain value."""
    return {key: next(_tables_in(hint), None) for key, hint in get_type_hints(table).items()}


def _tables_in(hint: Any) -> Iterator[type[Table]]:
    if isinstance(hint, type) and issubclass(hint, Table):
        yield hint
    for part in get_args(hint):
        yield from _tables_in(part)


def _offender(raw: Any, field: str) -> tuple[str, Any]:
    """The key path and the value at a msgspec path such as `environment.mcp_servers[0].url`.

    Where the value is absent, it is what should hold it. Msgspec shows a key of a free table as `[...]`; such tables
    hold strings, and the first value that is none is meant.
    """
    if field.endswith("[...]"):
        table = field.removesuffix("[...]")
        values = _lookup(raw, table)
        key = next((key for key, value in values.items() if not isinstance(value, str)), "")
        return f"{table}.{key}", values.get(key)
    return field, _lookup(raw, field)


def _lookup(raw: Any, field: str) -> Any:
    for key in re.findall(r"[^.\[\]]+", field):
        try:
            raw = raw[int(key)] if isinstance(raw, list) else raw[key]
        except (KeyError, IndexError, TypeError, ValueError):
            break
    return raw


def _check(table: TaskTable) -> None:
    """Harbor's own rules beyond types. Raises `ConfigError`."""
    if table.task is not None and not is_taskset_name(table.task.name):
        raise ConfigError(losses.NAME_INVALID, "task.name", value=table.task.name)
    if table.task is not None and table.task.version == "":
        raise ConfigError(losses.VERSION_EMPTY, "task.version", value="")
    _check_network(table.agent, "agent")
    _check_environment(table.environment, "environment")
    _check_verifier(table.verifier, "verifier")
    _check_artifacts(table.artifacts, "artifacts")
    names: set[str] = set()
    for number, step in enumerate(table.steps or []):
        path = f"steps[{number}]"
        if reason := why_not_portable(step.name, 255):
            raise ConfigError(losses.STEP_NAME, f"{path}.name", value=step.name, reason=reason)
        if folded(step.name) in names:
            raise ConfigError(losses.STEP_CLASH, f"{path}.name", value=step.name)
        names.add(folded(step.name))
        _check_network(step.agent, f"{path}.agent")
        _check_verifier(step.verifier, f"{path}.verifier")
        _check_artifacts(step.artifacts, f"{path}.artifacts")


def _check_environment(table: EnvironmentTable, path: str) -> None:
    _check_network(table, path)
    if isinstance(table.cpus, float):
        if not math.isfinite(table.cpus):
            raise ConfigError(losses.CPUS_INVALID, f"{path}.cpus", value=table.cpus)
        if table.cpus.is_integer():
            table.cpus = int(table.cpus)
    if table.tpu is not None and not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)+", table.tpu.topology.strip()):
        raise ConfigError(losses.TOPOLOGY_INVALID, f"{path}.tpu.topology", value=table.tpu.topology)
    for number, server in enumerate(table.mcp_servers):
        where = f"{path}.mcp_servers[{number}]"
        needed = "command" if server.transport == "stdio" else "url"
        if not getattr(server, needed):
            raise ConfigError(losses.SERVER_INCOMPLETE, where, value=server.name, needed=needed)
        if server.transport == "stdio" and server.headers:
            raise ConfigError(losses.SERVER_HEADERS, f"{where}.headers", value=sorted(server.headers))
        for name, value in server.headers.items():
            _check_header(name, value, f"{where}.headers.{name}")


# harbor/utils/env.py: a header of such a name, or a variable of such a name, carries a credential
_SENSITIVE = re.compile(r"KEY|SECRET|TOKEN(?!S)|PASSWORD|CREDENTIAL|AUTH", re.IGNORECASE)
_TEMPLATE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_BARE = r"\$\{[A-Za-z_][A-Za-z0-9_]*(?::-)?\}"
_CREDENTIAL = re.compile(rf"\s*(?:[A-Za-z]+\s+)?{_BARE}(?:[\s:-]*{_BARE})*\s*")


def _check_header(name: str, value: str, field: str) -> None:
    if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or "\r" in value or "\n" in value:
        raise ConfigError(losses.HEADER_INVALID, field, value=f"{name}: {value}")
    if "${" in _TEMPLATE.sub(" ", value):
        raise ConfigError(losses.HEADER_TEMPLATE, field, value=value)
    sensitive = bool(_SENSITIVE.search(name)) or name.lower() in ("cookie", "set-cookie")
    literal = any(match[2] and (sensitive or _SENSITIVE.search(match[1])) for match in _TEMPLATE.finditer(value))
    if literal or (sensitive and value.strip() and not _CREDENTIAL.fullmatch(value)):
        raise ConfigError(losses.HEADER_CREDENTIAL, field, value="(not shown)")


def _check_verifier(verifier: VerifierTable, path: str) -> None:
    _check_network(verifier, path)
    if verifier.environment is None:
        return
    if verifier.environment_mode == "shared":
        field, other = f"{path}.environment_mode", f"{path}.environment"
        raise ConfigError(losses.VERIFIER_CONFLICT, field, value="shared", other=other)
    _check_environment(verifier.environment, f"{path}.environment")


def _check_network(table: AgentTable | EnvironmentTable | VerifierTable, path: str) -> None:
    hosts = table.allowed_hosts
    if hosts is None:
        return
    # an empty list is tolerated in [environment] only, whose mode is never absent
    if table.network_mode != "allowlist" and (hosts or table.network_mode is None):
        raise ConfigError(losses.HOSTS_UNUSED, f"{path}.allowed_hosts", value=hosts)
    table.allowed_hosts = [_host(host, f"{path}.allowed_hosts") for host in hosts]


_LABELS = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*")


def _host(host: str, field: str) -> str:
    """A name, `*.suffix`, address or network, as Harbor normalises it."""
    name = host.strip().lower().rstrip(".")
    try:
        if "/" in name:
            return ipaddress.ip_network(name).compressed
        if ":" in name:
            return ipaddress.IPv6Address(name).compressed
    except ValueError:
        raise ConfigError(losses.HOST_INVALID, field, value=host) from None
    if not _LABELS.fullmatch(name.removeprefix("*.")):
        raise ConfigError(losses.HOST_INVALID, field, value=host)
    return name


def _check_artifacts(artifacts: list[str | ArtifactTable], path: str) -> None:
    for number, item in enumerate(artifacts):
        artifact = ArtifactTable(source=item) if isinstance(item, str) else item
        where = f"{path}[{number}]"
        if ".." in PurePosixPath(artifact.source).parts:
            raise ConfigError(losses.ARTIFACT_SOURCE, where, value=artifact.source)
        if artifact.service not in (None, "main") and not artifact.source.startswith("/"):
            raise ConfigError(losses.ARTIFACT_RELATIVE, where, value=artifact.source)
        place = artifact.destination
        if place and ("\\" in place or place.startswith("/") or ".." in PurePosixPath(place).parts):
            raise ConfigError(losses.ARTIFACT_DESTINATION, where, value=place)
        if place and place.rstrip("/") == "manifest.json":
            raise ConfigError(losses.ARTIFACT_RESERVED, where, value=place)


_DEVICES = re.compile(r"CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(?:COM|LPT)[1-9¹²³]", re.IGNORECASE)


def why_not_portable(name: str, limit: int) -> str | None:
    """Why `name` cannot name a folder on every system: Harbor's rule for steps. `limit` in bytes."""
    if not name.strip() or name in (".", ".."):
        return "it is empty"
    if name.endswith((".", " ")):
        return "it ends in a dot or a space"
    if found := re.search(r'[<>:"/\\|?*\x00-\x1f\x7f]', name):
        return f"it contains {found[0]!r}"
    if _DEVICES.fullmatch(name.partition(".")[0].rstrip(" ")):
        return "it is a device name of Windows"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "it is not UTF-8"
    return f"it has more than {limit} bytes" if size > limit else None
