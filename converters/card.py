"""The dataset card of a repository for several frameworks: a YAML header that the Hub reads, and a section of ours.

The section stands between two marks; what stands outside them, and what else the header says, is the owner's.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import yaml
from jinja2 import Environment, StrictUndefined

from envconvert.formats.catalogue import FORMATS
from envconvert.formats.files import Digest, digest_of, walk
from envconvert.formats.losses import KINDS, Loss, Severity
from envconvert.formats.taskset import Taskset
from envconvert.report import FILE, Check, MeasuredParity, Parity, RepositoryReport, Row, compared, to_json
from envconvert.staging import TargetTakenError
from envconvert.viewer import configs

CARD = "README.md"
PARITY = "parity.json"

_BEGIN = "<!-- envconvert: what stands between these two marks is written anew by each publish -->"
_END = "<!-- envconvert: end -->"
_PARITY_BEGIN, _PARITY_END = "<!-- envconvert: parity -->", "<!-- envconvert: end of parity -->"
_HEADER = re.compile(r"\A---\n(?P<yaml>.*?\n)?---\n", re.DOTALL)

_ENVIRONMENT_TAG = "rl-environment"

# As the Hub spells the licences that environments have; any other is `other`, with its name beside it.
_LICENCES = {
    *("apache-2.0", "mit", "mit-0", "bsd-2-clause", "bsd-3-clause", "isc", "unlicense", "wtfpl", "zlib", "cc0-1.0"),
    *("cc-by-3.0", "cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "cc-by-nc-4.0", "cc-by-nc-sa-4.0", "cc-by-nd-4.0"),
    *("gpl-2.0", "gpl-3.0", "agpl-3.0", "lgpl-2.1", "lgpl-3.0", "mpl-2.0", "epl-2.0", "odbl", "pddl"),
}
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What a card shows of the tasks that were written."""

    example: str
    """The id of the one that the commands run."""
    splits: Mapping[str, int]
    containers: Mapping[str, int]


def owners_text(folder: Path) -> str | None:
    """The card in `folder` as its owner left it; None where there is none."""
    try:
        return (folder / CARD).read_text("utf-8")
    except FileNotFoundError:
        return None


def parity_of(folder: Path, digest: str) -> MeasuredParity | None:
    """What parity measured on files of this `digest` and left in `folder`; None where it was none, or on others."""
    try:
        measured = msgspec.json.decode((folder / PARITY).read_bytes(), type=MeasuredParity)
    except (OSError, msgspec.DecodeError):
        return None
    return measured if measured.digest == digest else None


def card(earlier: str | None, taskset: Taskset, report: RepositoryReport, shown: Shown, parity: Parity | None) -> str:
    """The card of a repository; `earlier` is what its owner has made of the last one.

    Raises `TargetTakenError` where the header of `earlier` or its marks cannot be read.
    """
    top, header, body = _parts(earlier or "")
    said = _header(header, taskset, report, shown)
    if said != header:  # else the owner's spelling and comments stay
        top = f"---\n{_yaml(said)}---\n"
    return top + _with_section(body, _section(taskset, report, shown, parity))


def leave_parity(folder: Path, report: RepositoryReport, rows: Sequence[Row]) -> None:
    """Write `rows` to parity.json of the repository at `folder`, over those measured before, and to its card."""
    ours = [name for name in report.entries if name not in (CARD, PARITY, FILE)]
    digest = str(_digest(folder, ours))
    earlier = parity_of(folder, digest)
    found = {(row.task, row.framework, row.agent): row for row in [*(earlier.rows if earlier else ()), *rows]}
    measured = MeasuredParity(**msgspec.structs.asdict(compared(list(found.values()))), digest=digest)
    text = owners_text(folder) or ""
    before, begin, rest = text.partition(_PARITY_BEGIN)
    _, end, after = rest.partition(_PARITY_END)
    table = _parity_table(measured, report.tasks.written)
    _replace(folder / PARITY, to_json(measured))
    if end:
        _replace(folder / CARD, f"{before}{begin}\n{table}\n{end}{after}")
    report.entries = sorted({*report.entries, PARITY})
    report.target.digest = str(_digest(folder, [name for name in report.entries if name != FILE]))
    _replace(folder / FILE, to_json(report))


def _digest(folder: Path, names: Collection[str]) -> Digest:
    """Over what stands at the root of `folder` under these names."""
    digest = Digest()
    for name in names:
        if (folder / name).is_dir():
            digest.include(name, digest_of(walk(folder / name)))
        else:
            digest.add(name, (folder / name).lstat().st_mode, hashlib.sha256((folder / name).read_bytes()).hexdigest())
    return digest


def _replace(file: Path, text: str) -> None:
    """Write `file` anew in one step."""
    new = file.with_name(f".{file.name}.partial")
    new.write_text(text, "utf-8")
    new.chmod(0o644)
    new.replace(file)


def _parts(text: str) -> tuple[str, dict[str, Any], str]:
    """The header of a card, as text and as what it says, and what follows it."""
    found = _HEADER.match(text)
    if found is None:
        return "", {}, text
    try:
        header = yaml.safe_load(found["yaml"] or "") or {}
    except yaml.YAMLError as error:
        raise TargetTakenError(f"{CARD}: its header is no YAML that can be read: {error}; mend it there") from None
    if not isinstance(header, dict):
        raise TargetTakenError(f"{CARD}: its header is no mapping; write keys and values between the two lines ---")
    return found[0], header, text[found.end() :]


def _header(header: dict[str, Any], taskset: Taskset, report: RepositoryReport, shown: Shown) -> dict[str, Any]:
    """`header` brought up to date: tags of frameworks, size and the default configuration are ours, all else stays."""
    tagged = [FORMATS[check.framework].tag for check in report.checks if check.status in ("earned", "claimed")]
    ours = {_ENVIRONMENT_TAG, *(format.tag for format in FORMATS.values())}
    tags = [_ENVIRONMENT_TAG, *tagged, *(tag for tag in header.get("tags") or () if tag not in ours)]
    others = [entry for entry in header.get("configs") or () if entry.get("config_name") != "default"]
    new: dict[str, Any] = {"pretty_name": taskset.name.rpartition("/")[2]}
    if taskset.licence and "license" not in header:
        known = taskset.licence.lower()
        new |= {"license": known} if known in _LICENCES else {"license": "other", "license_name": taskset.licence}
    size = next((name for limit, name in _SIZES if report.tasks.written < limit), "n>1M")
    return {**new, **header, "tags": tags, "size_categories": [size], "configs": [*configs(shown.splits), *others]}


def _yaml(header: dict[str, Any]) -> str:
    return yaml.safe_dump(header, sort_keys=False, allow_unicode=True, width=120)


def _with_section(body: str, section: str) -> str:
    """`body` with `section` where the last one stands, else after it."""
    marks = body.count(_BEGIN), body.count(_END)
    if marks == (0, 0):
        return f"{body.rstrip()}\n\n{section}" if body.strip() else section
    before, _, rest = body.partition(_BEGIN)
    _, end, after = rest.partition(_END + "\n")
    if marks != (1, 1) or not end:
        raise TargetTakenError(f"{CARD}: its section of envconvert is not between the two marks\n{_BEGIN}\n{_END}")
    return before + section + after


def _section(taskset: Taskset, report: RepositoryReport, shown: Shown, parity: Parity | None) -> str:
    template = (files("envconvert") / "card.md.jinja").read_text("utf-8")
    checks = {check.framework: check for check in report.checks}
    values: dict[str, Any] = {
        "begin": _BEGIN,
        "end": _END,
        "parity_begin": _PARITY_BEGIN,
        "parity_end": _PARITY_END,
        "taskset": taskset,
        "report": report,
        "shown": shown,
        "formats": [
            {
                "title": FORMATS[name].title,
                "release": FORMATS[name].release,
                "tasks": report.by_format[name].written,
                "verdict": _verdict(checks[name]),
                "commands": FORMATS[name].writer().commands(taskset, shown.example),
            }
            for name in report.target.formats
        ],
        "losses": _losses(report.losses),
        "notes": sum(loss.severity is Severity.NOTE for loss in report.losses),
        "parity": _parity_table(parity, report.tasks.written) if parity else None,
    }
    return _ENVIRONMENT.from_string(template).render(values)


_ENVIRONMENT = Environment(undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True, autoescape=False)
# What a source says must neither end the section nor a cell of a table.
_ENVIRONMENT.filters["plain"] = lambda text: " ".join(str(text).split()).replace("<!--", "&lt;!--").replace("|", "\\|")


def _verdict(check: Check) -> str:
    match check.status:
        case "earned":
            return f"tag earned: all {check.loaded} tasks load, and the reference of one scores 1.0 or more"
        case "claimed":
            return "tag claimed by the publisher, **not checked**"
        case "unavailable":
            return "no tag: it could not be asked where this was published"
        case "failed":
            return f"no tag: {check.loaded} of {check.tasks} tasks load; {check.errors[-1]}"


class _LossRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table of what was lost."""

    format: str
    severity: str
    code: str
    tasks: int
    hint: str


def _losses(losses: Sequence[Loss]) -> list[_LossRow]:
    """How many tasks have each loss, the gravest of a format first; notes, which change nothing that runs, aside."""
    found = Counter((loss.format, loss.severity, loss.code) for loss in _once_a_task(losses))
    gravest = list(Severity)[::-1]
    order = sorted(found.items(), key=lambda item: (item[0][0], gravest.index(item[0][1]), -item[1], item[0][2]))
    hints: dict[str, set[str]] = {}
    for loss in losses:
        hints.setdefault(loss.code, set()).add(loss.hint)
    return [
        _LossRow(
            format=format,
            severity=severity.value,
            code=code,
            tasks=tasks,
            hint=min(hints[code]) if len(hints[code]) == 1 else KINDS[code].hint,
        )
        for (format, severity, code), tasks in order
        if severity is not Severity.NOTE
    ]


def _once_a_task(losses: Sequence[Loss]) -> list[Loss]:
    return list({(loss.task, loss.format, loss.severity, loss.code): loss for loss in losses}.values())


def _parity_table(parity: Parity, tasks: int) -> str:
    """The rewards in the source's framework and in each of the target's, compared."""
    rows = Counter((row.framework, row.agent, _outcome(row.source, row.equal)) for row in parity.rows)
    measured = len({row.task for row in parity.rows})
    lines = [
        f"{measured} of {tasks} tasks were scored on Docker, in the source's framework and in each of these.",
        "`oracle` plays the reference solution, `nop` does nothing.",
        "",
        "| framework | agent | equal rewards | no reward on either side | different |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    frameworks = list(dict.fromkeys(row.framework for row in parity.rows))
    pairs = dict.fromkeys((row.framework, row.agent) for row in parity.rows)
    for framework, agent in sorted(pairs, key=lambda pair: frameworks.index(pair[0])):
        equal, unscored, different = (rows[framework, agent, outcome] for outcome in ("equal", "unscored", "different"))
        release = f"{FORMATS[framework].title} {FORMATS[framework].release}"
        lines.append(f"| {release} | {agent} | {equal} | {unscored} | {different} |")
    return "\n".join(lines)


def _outcome(source: float | None, equal: bool) -> str:
    if not equal:
        return "different"
    return "unscored" if source is None else "equal"
