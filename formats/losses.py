"""What a conversion could not carry: one typed value for each fact, with a stable code.

A `Kind` says what can be lost and what would help; `KINDS` is the list of them all, and docs/losses.md is made from it.
A `Loss` is a kind met on one task. Nothing is lost any other way: a part that a reader or a writer meets and cannot
carry ends in one of these, never in a default.
"""

import re
from collections.abc import Iterable
from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """How much a loss costs, mildest first."""

    NOTE = "note"
    """Kept elsewhere, still recoverable; nothing that runs differs."""
    DEGRADED = "degraded"
    """The task runs, and something about it differs."""
    REFUSED = "refused"
    """The task is not written."""


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that one task lost, as the report prints it."""

    code: str
    severity: Severity
    task: str
    format: str
    """The format that could not hold or read it."""
    field: str
    """Where it stood: a key path such as `environment.memory`, or a file of the task."""
    message: str
    hint: str


class Kind(msgspec.Struct, frozen=True):
    """One way to lose something.

    `message` and `hint` are `str.format` templates; `loss` fills them with its keyword arguments, of which `value` is
    shown as Python would write it.
    """

    code: str
    severity: Severity
    message: str
    hint: str

    def loss(self, *, task: str, format: str, field: str, **values: object) -> Loss:
        """The loss of this kind at `field` of `task`, met by `format`."""
        shown = {name: _shown(value) if name == "value" else str(value) for name, value in values.items()}
        return Loss(
            code=self.code,
            severity=self.severity,
            task=printable(task),
            format=format,
            field=printable(field),
            message=printable(self.message.format(**shown)),
            hint=printable(self.hint.format(**shown)),
        )


class RefusedError(Exception):
    """Raised inside a reader or writer to give up one task; the task's other losses are kept beside it."""

    def __init__(self, loss: Loss) -> None:
        super().__init__(f"{loss.task}: {loss.field}: {loss.message}")
        self.loss = loss


def printable(text: str) -> str:
    """`text` with bytes that are no UTF-8 (file names may hold them) written as escapes, so that JSON can hold it."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def one_line(text: str) -> str:
    """`text` for a terminal: printable, and with control characters, line ends among them, written as escapes."""
    return re.sub(
        r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", lambda found: found[0].encode("unicode_escape").decode(), printable(text)
    )


def _shown(value: object, limit: int = 120) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


N, D, R = Severity.NOTE, Severity.DEGRADED, Severity.REFUSED

# Task folders, whatever the format that reads them.
ID_INVALID = Kind(
    "id-invalid",
    R,
    "the folder name {value} is no portable file name ({reason})",
    'rename the folder: 1 to 200 bytes of UTF-8, no control characters, none of <>:"\\|?*, no device name of Windows',
)
ID_CLASH = Kind(
    "id-clash",
    R,
    "the id {value} equals {other} in everything but case or Unicode form",
    "rename one of the two folders",
)
LINK_OUTSIDE = Kind(
    "link-outside", R, "the link points out of the task, to {value}", "replace the link by a copy of what it points to"
)
LINK_CYCLE = Kind(
    "link-cycle",
    R,
    "following the link, to {value}, leads back to where it stands",
    "remove the link, or link to a file",
)
FILE_SPECIAL = Kind(
    "file-special", R, "the entry is a {value}, not a file, a folder or a link", "remove it from the task folder"
)
PATH_CLASH = Kind(
    "path-clash",
    R,
    "the path equals {value} in everything but case or Unicode form",
    "rename one of the two: other file systems hold only one of them",
)
CHANGED = Kind(
    "changed", R, "it changed while the task was read: it is now a {value}", "convert again when nothing writes there"
)
UNREADABLE = Kind("unreadable", R, "it cannot be read: {value}", "make it readable for the user who converts")

# Reading Harbor.
DATASET_UNREADABLE = Kind(
    "dataset-unreadable", N, "dataset.toml is left aside: {value}", "mend it; the tasks do not depend on it"
)
CONFIG_MISSING = Kind(
    "config-missing", R, "the folder looks like a task and has no task.toml", "add task.toml, which may be empty"
)
CONFIG_BOM = Kind(
    "config-bom",
    R,
    "task.toml begins with a byte order mark, which TOML readers reject",
    "save it as UTF-8 without one",
)
CONFIG_ENCODING = Kind("config-encoding", R, "task.toml is not UTF-8: {value}", "save it as UTF-8")
CONFIG_SYNTAX = Kind("config-syntax", R, "task.toml is not TOML: {value}", "mend it at the place named")
VALUE_TYPE = Kind("value-type", R, "{value} is of the wrong type: {reason}", "write a value of that type")
NAME_INVALID = Kind(
    "name-invalid",
    R,
    "{value} is no name that Harbor takes: ORG/NAME of ASCII letters, digits, `-`, `_` and `.`, both beginning with a "
    "letter or digit",
    "rename it, or remove [task] and let the folder's name identify the task",
)
VERSION_EMPTY = Kind("version-empty", R, "the version is {value}, which Harbor refuses", "remove the key")
SIZE_INVALID = Kind(
    "size-invalid",
    R,
    "{value} is no size: a number followed by G, M or K",
    'write "2G" or "512M", or use the key that ends in _mb',
)
SIZE_CONFLICT = Kind(
    "size-conflict", R, "{value} contradicts {other}, and Harbor refuses the pair", "keep one of the two"
)
CPUS_INVALID = Kind("cpus-invalid", R, "{value} is no finite number of processors", "write a number, or remove the key")
TOPOLOGY_INVALID = Kind("topology-invalid", R, "{value} is no TPU topology", "write it as 2x4 or 2x2x1")
SERVER_INCOMPLETE = Kind(
    "server-incomplete", R, "the MCP server {value} lacks {needed}, which its transport needs", "add {needed}"
)
SERVER_HEADERS = Kind(
    "server-headers", R, "the headers {value} are sent to a stdio server, which takes none", "remove the headers"
)
HEADER_INVALID = Kind(
    "header-invalid", R, "{value} is no HTTP header", "write a name of letters, digits and `-`, and a value of one line"
)
HEADER_TEMPLATE = Kind(
    "header-template", R, "{value} holds a ${{ that begins no ${{VAR}}", "write ${{VAR}} or ${{VAR:-default}}"
)
HEADER_CREDENTIAL = Kind(
    "header-credential",
    R,
    "the header holds a credential itself {value}, which Harbor refuses",
    "refer to it, as in `Bearer ${{TOKEN}}`, without a default",
)
VERIFIER_CONFLICT = Kind(
    "verifier-conflict",
    R,
    "the mode {value} contradicts [{other}], which describes a container of the tests' own",
    'remove one of the two, or write environment_mode = "separate"',
)
HOSTS_UNUSED = Kind(
    "hosts-unused",
    R,
    "the hosts {value} are allowed, and network_mode is not allowlist",
    'write network_mode = "allowlist", or remove allowed_hosts',
)
HOST_INVALID = Kind(
    "host-invalid",
    R,
    "{value} is no host name, address or network",
    "write it without scheme, port and path; `*.` may begin it",
)
ARTIFACT_SOURCE = Kind(
    "artifact-source", R, "the path {value} contains `..`", "write the path in the container without it"
)
ARTIFACT_RELATIVE = Kind("artifact-relative", R, "the path {value} in another service is relative", "begin it with /")
ARTIFACT_DESTINATION = Kind(
    "artifact-destination",
    R,
    "{value} is no place below the artifacts folder",
    "write a relative path with / and without `..`",
)
ARTIFACT_RESERVED = Kind(
    "artifact-reserved", R, "{value} is where Harbor lists the artifacts", "choose another destination"
)
STEP_NAME = Kind("step-name", R, "{value} cannot name a step: {reason}", "rename the step and its folder")
STEP_CLASH = Kind("step-clash", R, "two steps are called {value}, but for case or Unicode form", "rename one of them")
INSTRUCTION_MISSING = Kind(
    "instruction-missing", R, "there is no instruction.md", "add it; it is what the agent is asked to do"
)
INSTRUCTION_ENCODING = Kind("instruction-encoding", R, "instruction.md is not UTF-8: {value}", "save it as UTF-8")
TESTS_MISSING = Kind("tests-missing", R, "there is no {value}", "add it; it writes the reward")
ENVIRONMENT_MISSING = Kind(
    "environment-missing",
    R,
    "there is no docker_image, no environment/Dockerfile and no environment/docker-compose.yaml",
    "name an image in [environment].docker_image, or add environment/Dockerfile",
)
KEY_UNKNOWN = Kind(
    "key-unknown",
    N,
    "Harbor has no such key and ignores its value {value}",
    "if it is meant to do something, check its spelling; it is carried in task.toml as it stands",
)
SIZE_INTEGER = Kind(
    "size-integer",
    D,
    "Harbor ignores a {key} that is a number, {value}, so that the task runs without that limit",
    'write {key}_mb = <mebibytes>, or a string such as "2G"',
)
STRATEGY_UNUSED = Kind(
    "strategy-unused", N, "{value} says how steps add up, and the task has no steps", "remove the key"
)
TEMPLATE_LITERAL = Kind(
    "template-literal",
    N,
    "{value} is passed on as it stands: Harbor fills in a ${{VAR}} only where it is the whole value",
    "put the whole value into one variable",
)
SCRIPT_CRLF = Kind(
    "script-crlf",
    D,
    "the script has CRLF line ends, which Linux takes for a part of its first line, {value}",
    "save it with LF line ends; until then it fails in Harbor and in what is written here",
)
REFERENCE_MISSING = Kind(
    "reference-missing", N, "there is no {value}, so that no reference solution can be played", "add one"
)
INSTRUCTION_CANARY = Kind(
    "instruction-canary",
    N,
    "its first lines are taken for canary marks and not shown to the agent: {value}",
    "if a line is a heading of the task, move it below the first line of text",
)

# Parts that a format cannot hold (parts.py). One code a part, so that a count of codes is a count of reasons.
STEPS = Kind("steps", R, "it has {value} steps, which cannot be played yet", "split it into tasks of one step")
SEPARATE_VERIFIER = Kind(
    "separate-verifier",
    R,
    "its tests want a container of their own ({value}), which cannot be given to them yet",
    'set [verifier].environment_mode = "shared" if the tests may run where the agent worked',
)
COMPOSE = Kind(
    "compose",
    R,
    "its container is a compose file, {value}, which cannot be started yet",
    "if one service is enough, describe it in environment/Dockerfile and remove the compose file",
)
MCP_SERVERS = Kind(
    "mcp-servers", R, "it offers the agent MCP servers, {value}, which cannot be served yet", "remove them"
)
NETWORK = Kind(
    "network",
    R,
    "it limits the network ({value}), which cannot be enforced yet",
    'set network_mode = "public" if the task may be solved with the network open',
)
HEALTHCHECK = Kind(
    "healthcheck",
    R,
    "it waits for a healthcheck, {value}, which is not run yet",
    "wait for the service in the image's entrypoint",
)
SKILLS = Kind("skills", R, "it gives the agent skills from {value}, which cannot be installed yet", "remove skills_dir")
GPUS = Kind("gpus", R, "it asks for {value} GPUs, which are not requested yet", "remove gpus if none is needed")
TPU = Kind("tpu", R, "it asks for a TPU, {value}, which no local runtime has", "remove tpu if none is needed")
WINDOWS = Kind("windows", R, "it runs on {value}, and the runtimes are Linux", "write it for Linux, with test.sh")
COLLECT = Kind(
    "collect",
    R,
    "it runs commands after the agent and before the tests, {value}, which are not run yet",
    "run them at the start of tests/test.sh",
)
TRAJECTORY = Kind(
    "trajectory",
    R,
    "it goes on from an earlier trajectory, {value}, which cannot be given to the agent yet",
    "remove it if the task can be solved from the start",
)
HARBORIGNORE = Kind(
    "harborignore",
    R,
    "{value} keeps files out of the container, which is not done yet",
    "move those files out of tests/ and solution/, and remove .harborignore",
)
ARTIFACTS = Kind(
    "artifacts",
    D,
    "its {value} artifacts are not saved after the run; the reward does not read them",
    "nothing, if only the reward counts",
)
AGENT_HOME = Kind(
    "agent-home",
    N,
    "the agent runs as {value}, for whom Verifiers asks a name and a writable home folder in the image",
    "make the user with `useradd --create-home`",
)

WORKDIR_RELATIVE = Kind(
    "workdir-relative",
    R,
    "the working folder {value} is relative, and a container has none to begin from",
    "begin it with /",
)
IMAGE_NAME = Kind("image-name", R, "{value} is no name of an image", "write it as docker pull takes it")

# What a wheel of the package lacks; installed with -e or put on PYTHONPATH it has all of it.
WHEEL_FOLDER = Kind(
    "wheel-folder", D, "{value} is empty, and a wheel holds no empty folders", "install with -e, or put a file into it"
)
WHEEL_LINK = Kind(
    "wheel-link",
    D,
    "it is a link to {value}, and a wheel holds a copy, or nothing where the target is missing",
    "install with -e, or replace the link by a copy",
)
WHEEL_MODE = Kind(
    "wheel-mode", N, "its mode {value} becomes 644 or 755 in a wheel", "install with -e, or set the mode in a script"
)
WHEEL_NAME = Kind("wheel-name", D, "the name {value} is not UTF-8, and a wheel cannot hold it", "rename the file")
WHEEL_EXCLUDED = Kind(
    "wheel-excluded", D, "the build backend leaves {value} out of a wheel", "install with -e, or rename it"
)

# Writing Harbor.
REWARD_KEY = Kind(
    "reward-key",
    N,
    "Harbor trains no one key: whoever reads its results must know that it is {value}",
    "let tests/test.sh write it as `reward`",
)
LIMIT_DEFAULT = Kind(
    "limit-default",
    D,
    "no time limit is said for {value}, and Harbor then applies 600 s",
    "say a limit",
)
STEPS_UNSAID = Kind(
    "steps-unsaid", R, "its {value} steps can only be written as the files they came from", "convert it unchanged"
)
PACKAGE_UNNAMED = Kind(
    "package-unnamed",
    N,
    "the task has no [task].name, which dataset.toml needs, so that it is not listed there",
    'add [task] name = "ORG/NAME" to its task.toml',
)
PACKAGE_UNDIGESTED = Kind(
    "package-undigested",
    N,
    "Harbor cannot say the digest of its files ({value}), so that it is not listed in dataset.toml",
    "mend what is named; harbor run does not need it",
)

KINDS: dict[str, Kind] = {kind.code: kind for kind in list(globals().values()) if isinstance(kind, Kind)}
"""Every kind by its code, in the order of this file."""


class Ledger:
    """The losses of one conversion, and what became of each task.

    `strict` makes a degraded task a refused one. Readers and writers record through `admit`.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.losses: list[Loss] = []
        self.read = 0
        self.written = 0
        self._worst: dict[str, Severity] = {}

    def admit(self, task: str, losses: Iterable[Loss]) -> bool:
        """Record what happened to `task`; false when it must not be carried further."""
        for loss in losses:
            if self.strict and loss.severity is Severity.DEGRADED:
                loss = msgspec.structs.replace(loss, severity=Severity.REFUSED)
            self.losses.append(loss)
            worst = self._worst.get(task, Severity.NOTE)
            self._worst[task] = max(worst, loss.severity, key=list(Severity).index)
        return self._worst.get(task) is not Severity.REFUSED

    def count(self, severity: Severity) -> int:
        """How many tasks have `severity` as their worst."""
        return sum(worst is severity for worst in self._worst.values())
