"""Parity: the same agent on both sides, scored by the real frameworks, and the rewards compared as numbers."""

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from envconvert.cache import cache_folder
from envconvert.environments import interpreter, require_docker
from envconvert.formats.catalogue import FORMATS, Format
from envconvert.formats.files import Digest, Tree
from envconvert.formats.losses import Ledger
from envconvert.formats.probe import Agent, Score
from envconvert.formats.taskset import Taskset
from envconvert.pipeline import read_stored

_TOLERANCE = 1e-9


class Row(msgspec.Struct, kw_only=True):
    """One task and agent on both sides: the designated rewards, null where nothing was scored, and why."""

    task: str
    framework: str
    agent: str
    source: float | None
    target: float | None
    equal: bool
    reason: str | None


class Parity(msgspec.Struct, kw_only=True):
    """All rows. `equal` counts rows of two equal numbers, `unscored` those with null on both sides."""

    rows: list[Row]
    equal: int
    different: int
    unscored: int


class _Side(msgspec.Struct, kw_only=True):
    """One of the two tasksets, and how it is scored."""

    folder: Path
    taskset: Taskset
    format: Format
    python: Path
    trees: dict[str, Tree]


class _KeptRow(msgspec.Struct, kw_only=True):
    """A row in the cache, under the digest of what it was measured on."""

    key: str
    row: Row


def parity(
    source: str | Path,
    target: str | Path,
    *,
    agents: Sequence[Agent] = ("oracle", "nop"),
    tasks: str | None = None,
    limit: int | None = None,
    jobs: int = 1,
    say: Callable[[str], None] = print,
) -> Parity:
    """Score every task that both folders hold with each agent; `jobs` tasks at once.

    Rows are kept in the cache until all are there, so that an interrupted run goes on; one that is measured on other
    files is not taken up. Raises `FrameworkUnavailableError`.
    """
    require_docker()
    sides = [_side(Path(folder).resolve(), tasks, limit, say) for folder in (source, target)]
    shared = [id for id in sides[0].taskset.ids if all(id in side.trees for side in sides)]
    if left_out := len(sides[0].taskset.ids) - len(shared):
        say(f"{left_out} tasks of {source} are not in {target}, and cannot be compared")
    kept = cache_folder("parity") / f"{_run_name(sides)}.jsonl"
    known = {row.key: row.row for row in _kept_rows(kept)}
    work = [(id, agent, _key(sides, id, agent)) for id in shared for agent in agents]

    def measure(item: tuple[str, Agent, str]) -> Row:
        id, agent, key = item
        if key in known:
            return known[key]
        row = _row(sides, id, agent)
        say(_line(row))
        with open(kept, "ab") as file:  # one write of one line: rows of two threads do not mix
            file.write(msgspec.json.encode(_KeptRow(key=key, row=row)) + b"\n")
        return row

    with ThreadPoolExecutor(jobs) as pool:
        try:
            rows = list(pool.map(measure, work))
        except BaseException:
            pool.shutdown(cancel_futures=True)  # Ctrl-C ends it after the rows under way, not after all of them
            raise
    kept.unlink(missing_ok=True)
    return Parity(
        rows=rows,
        equal=sum(row.equal and row.source is not None for row in rows),
        different=sum(not row.equal for row in rows),
        unscored=sum(row.equal and row.source is None for row in rows),
    )


def _side(folder: Path, tasks: str | None, limit: int | None, say: Callable[[str], None]) -> _Side:
    taskset = read_stored(folder, tasks=tasks, limit=limit)
    format = FORMATS[taskset.source.format]
    trees = {task.id: native.files for task in taskset.tasks(Ledger()) for native in task.native.values()}
    return _Side(
        folder=folder, taskset=taskset, format=format, python=interpreter(format.probe.framework, say), trees=trees
    )


def _row(sides: list[_Side], id: str, agent: Agent) -> Row:
    key = sides[0].taskset.reward.key if sides[0].format.name != "harbor" else sides[1].taskset.reward.key
    scores = [_score(sides[0], id, agent, key)]
    # What the source's framework does not run on this machine is compared with nothing, and takes no time on the other.
    scores.append(
        _score(sides[1], id, agent, key) if scores[0].started else Score(None, "not run, to be compared with")
    )
    source, target = (score.reward for score in scores)
    equal = source is target is None or (
        source is not None and target is not None and abs(source - target) <= _TOLERANCE
    )
    reasons = [f"{side.format.name}: {score.reason}" for side, score in zip(sides, scores, strict=True) if score.reason]
    return Row(
        task=id,
        framework=sides[1].format.name,
        agent=agent,
        source=source,
        target=target,
        equal=equal,
        reason="; ".join(reasons) or None,
    )


def _score(side: _Side, id: str, agent: Agent, key: str) -> Score:
    with tempfile.TemporaryDirectory(prefix="envconvert-parity-", ignore_cleanup_errors=True) as work:
        return side.format.probe.score(side.python, side.folder, id, agent, key, Path(work))


def _run_name(sides: list[_Side]) -> str:
    return hashlib.sha256("\n".join(str(side.folder) for side in sides).encode()).hexdigest()[:16]


def _key(sides: list[_Side], id: str, agent: Agent) -> str:
    """What a row was measured on: the task, the agent, and both sides' files, releases and rule."""
    parts: list[str] = [id, agent]
    for side in sides:
        parts += [side.format.name, side.format.probe.framework.release, side.taskset.reward.key]
        parts.append(_tree_digest(side.trees[id]))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _tree_digest(tree: Tree) -> str:
    digest = Digest()
    for path in tree.files():
        place = tree.root / path
        content = place.read_bytes() if place.is_file() else str(place.readlink()).encode()
        digest.add(path, place.lstat().st_mode, hashlib.sha256(content).hexdigest())
    return str(digest)


def _kept_rows(kept: Path) -> Iterator[_KeptRow]:
    """Rows of an interrupted run; a last line that was cut off is left out."""
    if not kept.exists():
        return
    for line in kept.read_bytes().splitlines():
        try:
            yield msgspec.json.decode(line, type=_KeptRow)
        except msgspec.DecodeError:
            continue


def _line(row: Row) -> str:
    verdict = "equal" if row.equal else "DIFFERENT"
    return f"{row.task} {row.agent}: {row.source} {row.target} {verdict}" + (f" ({row.reason})" if row.reason else "")


def describe(result: Parity) -> str:
    """`result` for people."""
    lines = [_line(row) for row in result.rows]
    lines.append(f"{result.equal} equal, {result.different} different, {result.unscored} unscored on both sides")
    return "\n".join(lines)
