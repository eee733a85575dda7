"""Tasks of a package that is read and not run: its rows as prompts, and its rewards as rules."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import libcst as cst
import msgspec

from envconvert.formats import losses
from envconvert.formats.execution import Execution, ExecutionError
from envconvert.formats.files import UnreadableSourceError
from envconvert.formats.losses import KINDS, Ledger, Loss, RefusedError, printable
from envconvert.formats.names import Apart, local_name
from envconvert.formats.rules import Combined, Packaged, Rule, Strip, Weighted
from envconvert.formats.rules import judges as judging
from envconvert.formats.taskset import (
    NONE,
    Media,
    Message,
    Reply,
    ReplyTask,
    Select,
    Taskset,
    TasksetSource,
    Text,
    every,
)
from envconvert.formats.verifiers.sources import judges, running, scoring, shipping
from envconvert.formats.verifiers.sources.dataset import Fetch, Table, from_hub
from envconvert.formats.verifiers.sources.description import (
    Description,
    Doubt,
    Environment,
    Reward,
    data_of,
    describe,
    value_of,
)
from envconvert.formats.verifiers.sources.generation import V0
from envconvert.formats.verifiers.sources.operations import TooLargeError, is_plain
from envconvert.formats.verifiers.sources.parsers import kind
from envconvert.formats.verifiers.sources.syntax import dotted
from envconvert.formats.verifiers.sources.texts import UnsaidError
from envconvert.formats.verifiers.sources.values import (
    Bound,
    External,
    Function,
    Given,
    Instance,
    Said,
    Unknown,
    Value,
    Where,
)
from envconvert.formats.verifiers.sources.values import (
    Text as ReplyText,
)

NAME = "verifiers"

Row = Mapping[str, Any]


def read(
    source: Path,
    *,
    name: str | None,
    select: Select = every,
    split: str | None = None,
    arguments: Mapping[str, str] = NONE,
    fetch: Fetch = from_hub,
    execution: Execution | None = None,
) -> Taskset:
    """The taskset of the package at `source`, as far as it is known without running it, or by `execution`.

    What only running it tells is a refusal: of the whole source in `unread`, or of a task. Raises
    `UnreadableSourceError`.
    """
    found = describe(source, fetch, arguments)
    notes: list[Loss] = []
    archives: dict[str, bytes] = {}
    if execution is not None and running.can_run(found) and _is_unsaid(found):
        given = {name: value_of(text) for name, text in arguments.items()}
        try:
            found = running.run(found, source, given, execution)
        except ExecutionError as error:
            notes.append(error.kind.loss(task="", format=NAME, field=found.entry, what=error.what))
        else:
            found, archives = _shipped(found, source, given)
    members = list(_members(found, split))
    if split is not None and not members and any(environment.rows for environment in found.environments):
        there = sorted({title for environment in found.environments for title in environment.rows if title})
        raise UnreadableSourceError(source, f"it has no split {split!r}; its splits: {', '.join(there) or 'none'}")
    apart = Apart()
    ids = [apart(_id(row)) for _, _, row in members]
    chosen = frozenset(select(ids))
    sets: dict[str, list[str]] = {}
    for id, (_, title, _) in zip(ids, members, strict=True):
        if id in chosen and title:
            sets.setdefault(title, []).append(id)
    unread = (*_unread(found), *notes)
    return Taskset(
        name=name or local_name(found.name),
        version=found.version,
        description=found.about,
        licence=found.licence,
        source=TasksetSource(format=NAME, uri=printable(source.name), variant=arguments),
        ids=tuple(id for id in ids if id in chosen),
        sets={title: tuple(inside) for title, inside in sets.items()},
        unread=unread,
        packed=True,
        kind="reply",
        archives=archives,
        tasks=lambda ledger: _tasks(found, members, ids, chosen, unread, ledger),
    )


def _is_unsaid(found: Description) -> bool:
    """Whether running the package may tell what its source does not: its rows, or how it scores some."""
    doubts = (doubt for each in found.environments for doubt in (*each.doubts, *each.hindrances))
    if any(doubt.code in running.UNSAID for doubt in doubts):
        return True
    for environment, _, row in _members(found, None):
        if not environment.hindrances:
            try:
                _task(found, environment, "", row)
            except RefusedError as refused:
                if refused.loss.code in _RUN:
                    return True
    return False


_RUN = (*running.UNSAID, "verifiers-code")
"""Codes of refusals that may not be, where the package runs."""


def _shipped(found: Description, source: Path, arguments: Row) -> tuple[Description, dict[str, bytes]]:
    """A package that ran, with how its code scores where that can be hosted; and the file that holds the package."""
    made = []
    name, content = "", b""
    for each in found.environments:
        try:
            if not each.hindrances:
                shipping.check(found, each, source)
                if not content:
                    name, content = shipping.archived(source, found.entry)
            code = Packaged(
                release=found.generation.release,
                package=name,
                module=found.entry,
                arguments=arguments,
                environment=each.number,
                row={},
                requires=running.requirements(found),
            )
            made.append(msgspec.structs.replace(each, code=code))
        except shipping.UnshippableError as error:
            made.append(msgspec.structs.replace(each, unshipped=str(error)))
    return msgspec.structs.replace(found, environments=tuple(made)), {name: content} if content else {}


def _members(found: Description, split: str | None) -> Iterator[tuple[Environment, str, Any]]:
    """Each row with its environment and its split."""
    for environment in found.environments:
        for title, rows in environment.rows.items():
            if split is None or title == split:
                for row in rows.rows if isinstance(rows, Table) else rows:
                    yield environment, title, row


def _id(row: Any) -> str:
    """A v1 task's own id; else one of what the row holds."""
    if isinstance(row, Instance):
        data = row.arguments.get("0")
        fields = dict(data.attributes) | data.arguments if isinstance(data, Instance) else {}
        if isinstance(fields.get("id"), str):
            return str(fields["id"])
        row = {key: value for key, value in fields.items() if key != "idx"}
    said = json.dumps(row, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _unread(found: Description) -> tuple[Loss, ...]:
    """What the package is, and why rows of it are not known."""
    kind = losses.VERIFIERS_READ if found.environments[0].ran is None else losses.VERIFIERS_RAN
    made = [kind.loss(task="", format=NAME, field=found.entry, value=found.generation.name, about=about(found))]
    for environment in found.environments:
        made += [_loss("", doubt) for doubt in environment.doubts]
        if not environment.rows:
            made += [_loss("", doubt) for doubt in environment.hindrances]
    return tuple(made)


def about(found: Description) -> str:
    """What is known of it, in one line."""
    said = [f"runs with verifiers {found.generation.release}"]
    if found.generation.requirement:
        said[0] += f" ({found.generation.requirement})"
    if found.generation.also:
        said.append(f"also {', '.join(found.generation.also)}")
    if found.arguments:
        said.append("arguments " + ", ".join(f"{name}={value!r:.60}" for name, value in found.arguments.items()))
    if needed := [each for each in found.dependencies if each != found.generation.requirement]:
        said.append(f"needs {', '.join(needed)}")
    for each in found.environments:
        kind = f"{each.own}, a {each.kind}" if each.own else each.kind
        count = sum(len(rows.rows) if isinstance(rows, Table) else len(rows) for rows in each.rows.values())
        said.append(f"{kind}: {count} rows" + (f" from {', '.join(each.data)}" if each.rows and each.data else ""))
        said += [f"rewards {', '.join(f'{r.name} {r.weight:g}' for r in each.rewards)}"] if each.rewards else []
        said += [f"tools {', '.join(each.tools)}"] if each.tools else []
        said += [f"at most {each.turns} turns"] if each.turns is not None else []
    return "; ".join(said)


def _loss(task: str, doubt: Doubt) -> Loss:
    return KINDS[doubt.code].loss(task=task, format=NAME, field=doubt.field, value=doubt.what, what=doubt.what)


def _tasks(
    found: Description,
    members: Sequence[tuple[Environment, str, Any]],
    ids: Sequence[str],
    chosen: frozenset[str],
    unread: Sequence[Loss],
    ledger: Ledger,
) -> Iterator[ReplyTask]:
    ledger.admit("", unread)
    for id, (environment, _, row) in zip(ids, members, strict=True):
        if id not in chosen:
            continue
        ledger.read += 1
        if not ledger.admit(id, [_loss(id, doubt) for doubt in environment.hindrances]):
            continue
        try:
            task, lost = _task(found, environment, id, row)
        except RefusedError as refused:
            ledger.admit(id, [refused.loss])
        else:
            if ledger.admit(id, lost):
                yield task


def _task(found: Description, environment: Environment, id: str, row: Any) -> tuple[ReplyTask, list[Loss]]:
    is_v0 = found.generation.name == V0
    fields = row if is_v0 else data_of(row)
    if not is_plain({key: value for key, value in fields.items() if key in ("prompt", "question", "system_prompt")}):
        why = _first_unknown(fields) or Unknown("what is computed in it", _NOWHERE)
        raise _refused(id, "verifiers-executes", str(why.where), f"the prompt: {why.what}")
    prompt = _prompt_v0(environment, id, fields) if is_v0 else _prompt_v1(id, fields)
    try:
        if not environment.is_told:
            raise _refused(id, "verifiers-code", found.entry, "that its source does not show")
        rule, values, lost = _rule(found, environment, id, row, fields)
    except RefusedError as refused:
        if environment.ran is None or refused.loss.code not in _RUN:
            raise
        return ReplyTask(id=id, prompt=prompt, rule=_hosted(environment, id, fields, is_v0)), _metrics(environment, id)
    replies = _replies(environment, fields, values, None if not is_v0 else 0.0)
    task = ReplyTask(id=id, prompt=prompt, rule=rule, replies=replies)
    return task, lost


def _first_unknown(value: Value) -> Unknown | None:
    if isinstance(value, Unknown):
        return value
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return next((found for each in inside if (found := _first_unknown(each)) is not None), None)


def _refused(id: str, code: str, field: str, what: str) -> RefusedError:
    return RefusedError(_loss(id, Doubt(code, field, what)))


# Prompts.


def _prompt_v0(environment: Environment, id: str, row: Row) -> tuple[Message, ...]:
    return _messages(id, _conversation_v0(environment, id, row))


def _conversation_v0(environment: Environment, id: str, row: Row) -> list[Any]:
    """As Verifiers 0.1.14 makes it (envs/environment.py, _ensure_prompt)."""
    system = () if environment.system is None else ({"role": "system", "content": environment.system},)
    given = row.get("prompt")
    if isinstance(given, list):
        first = given[0].get("role") if given and isinstance(given[0], dict) else None
        return given if first == "system" else [*system, *given]
    if given is not None:
        raise _refused(id, "verifiers-prompt", "prompt", "a text that the model goes on with, and no messages")
    if isinstance(row.get("question"), str):
        return [*system, *environment.few_shot, {"role": "user", "content": row["question"]}]
    raise _refused(id, "verifiers-prompt", "prompt", "a row with neither prompt nor question")


def _prompt_v1(id: str, row: Row) -> tuple[Message, ...]:
    system = row.get("system_prompt")
    given = row.get("prompt")
    said: list[Any] = [] if system is None else [{"role": "system", "content": system}]
    if isinstance(given, str):
        said.append({"role": "user", "content": given})
    elif isinstance(given, list):
        said += given
    else:
        raise _refused(id, "verifiers-prompt", "prompt", "no prompt: the environment opens the conversation")
    if row.get("image") is not None:
        raise _refused(id, "verifiers-sandbox", "image", f"the image {row['image']!r:.80}")
    return _messages(id, said)


def _messages(id: str, said: Sequence[Any]) -> tuple[Message, ...]:
    made = []
    for message in said:
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ("system", "developer", "user", "assistant") or set(message) - {"role", "content", "name"}:
            raise _refused(id, "verifiers-prompt", "prompt", f"the message {message!r:.80}")
        made.append(Message(role=role, content=_content(id, message.get("content"))))
    if not made or made[-1].role == "assistant":
        raise _refused(id, "verifiers-prompt", "prompt", "messages of which the last is none to reply to")
    return tuple(made)


def _content(id: str, content: Any) -> str | tuple[Text | Media, ...]:
    if isinstance(content, str):
        return content
    parts: list[Text | Media] = []
    for part in content if isinstance(content, list) else [content]:
        match part:
            case {"type": "text", "text": str(text)}:
                parts.append(Text(text=text))
            case {"type": "image_url", "image_url": {"url": str(url)}}:
                parts.append(Media(kind="image", url=url))
            case {"type": "image_url", "image_url": str(url)}:
                parts.append(Media(kind="image", url=url))
            case _:
                raise _refused(id, "verifiers-prompt", "prompt", f"the content {part!r:.80}")
    return tuple(parts)


# Rewards.


def _rule(
    found: Description, environment: Environment, id: str, row: Any, fields: Row
) -> tuple[Rule, list[tuple[Value, float]], list[Loss]]:
    """The rule, what it is made of with the weights, and what it loses."""
    parts: list[Weighted] = []
    values: list[tuple[Value, float]] = []
    lost: list[Loss] = []
    is_v0 = found.generation.name == V0
    for reward in environment.rewards:
        if reward.weight == 0:
            lost.append(_loss(id, Doubt("verifiers-metric", "rewards", reward.name)))
            continue
        value = _scored(found, environment, id, reward, row, fields)
        try:
            made = scoring.rule_of(value, 0.0 if is_v0 else None)
        except UnsaidError as error:
            raise _refused(id, "verifiers-code", _place(reward), f"{reward.name} ({_place(reward)}): {error}") from None
        lost += [_loss(id, Doubt("judge-chosen", _place(reward), model)) for model in judging(made) if model]
        name = reward.name if reward.name not in {part.name for part in parts} else f"{reward.name}-{len(parts) + 1}"
        parts.append(Weighted(name=name, rule=made, weight=reward.weight))
        values.append((value, reward.weight))
    if not parts:
        raise _refused(id, "verifiers-unscored", "rewards", environment.own or environment.kind)
    if len(parts) == 1 and parts[0].weight == 1:
        return parts[0].rule, values, lost
    return Combined(parts=tuple(parts)), values, lost


def _hosted(environment: Environment, id: str, fields: Row, is_v0: bool) -> Packaged:
    """The package's own code as the rule of a row. Raises `RefusedError`."""
    ran = environment.ran
    assert ran is not None
    counted = [each for each in ran.rewards if each.weight]
    if group := next((each for each in ran.rewards if each.group), None):
        raise _refused(id, "verifiers-group", "rewards", group.name)
    if not counted:
        raise _refused(id, "verifiers-unscored", "rewards", environment.own or environment.kind)
    if environment.code is None:
        raise _refused(id, "verifiers-unhosted", "rewards", environment.unshipped)
    if unknown := _first_unknown(dict(fields)):
        raise _refused(id, "verifiers-executes", str(unknown.where), f"its row: {unknown.what}")
    row = {**fields, "prompt": _conversation_v0(environment, id, fields)} if is_v0 else dict(fields)
    if not is_plain(row):
        raise _refused(id, "verifiers-executes", "rewards", "its row")
    return msgspec.structs.replace(environment.code, row=row)


def _metrics(environment: Environment, id: str) -> list[Loss]:
    assert environment.ran is not None
    unweighed = [each.name for each in environment.ran.rewards if not each.weight]
    return [_loss(id, Doubt("verifiers-metric", "rewards", name)) for name in unweighed]


def _place(reward: Reward) -> str:
    function = reward.function
    function = function.function if isinstance(function, Bound) and function.function is not None else function
    return str(function.where) if isinstance(function, (Function, Instance)) else "verifiers"


_GROUP = {"states", "prompts", "completions", "answers", "tasks", "infos"}


def _scored(found: Description, environment: Environment, id: str, reward: Reward, row: Any, fields: Row) -> Value:
    """What a reward function computes of a reply."""
    evaluator = found.evaluator
    function = reward.function
    try:
        if found.generation.name == V0:
            names = _parameters(function)
            if names & _GROUP or _returns_list(function):
                raise _refused(id, "verifiers-group", _place(reward), f"{reward.name} ({_place(reward)})")
            if _is_math(function) and found.generation.release != "0.1.14":
                raise UnsaidError(f"the MathRubric of verifiers {found.generation.release}")
            given = _objects(environment, id, reward, fields)
            if "" not in names:
                given = {name: value for name, value in given.items() if name in names}
            for name in _required(function) - given.keys():
                given[name] = Given(f"the argument {name}, which its rubric gives", _NOWHERE)
            return evaluator.scored(function, [], given)
        attributes = {"last_reply": ReplyText((Strip(),)), "num_turns": 1}  # stripped, as trace.py of 0.4.0 has it
        trace = Instance(External("verifiers.Trace"), _NOWHERE, attributes=attributes)
        known = {"trace": trace, "task": row.arguments.get("0"), "runtime": Given("the container", _NOWHERE)}
        named = {name: known[name] for name in _parameters(function) & known.keys()}
        assert isinstance(function, Function)
        return evaluator.scored(Bound(row, reward.name, function), [], named)
    except (UnsaidError, TooLargeError) as error:
        raise _refused(id, "verifiers-code", _place(reward), f"{reward.name} ({_place(reward)}): {error}") from None
    except RecursionError:
        what = f"{reward.name} ({_place(reward)}): it nests too deep"
        raise _refused(id, "verifiers-code", _place(reward), what) from None


_NOWHERE = Where("verifiers", 0)


def _is_math(function: Any) -> bool:
    return isinstance(function, Bound) and function.name == "correct_answer" and function.function is None


def _parameters(function: Any) -> set[str]:
    """Names of the parameters; an empty one where it takes any."""
    if isinstance(function, Bound):
        if function.function is None:
            return {"completion", "answer"}
        return _parameters(function.function)
    if isinstance(function, Function):
        params = function.node.params
        each = (*params.posonly_params, *params.params, *params.kwonly_params)
        rest = set() if params.star_kwarg is None else {""}
        return {p.name.value for p in each} | rest
    return {""}


def _required(function: Any) -> set[str]:
    """Names of the parameters that must be given."""
    if isinstance(function, Bound):
        names = set() if function.function is None else _required(function.function)
        return names - {"self"}
    if not isinstance(function, Function):
        return set()
    return _parameters(function) - {""} - set(function.defaults)


def _objects(environment: Environment, id: str, reward: Reward, row: Row) -> dict[str, Value]:
    """What a reward function of v0 may ask for by name (rubrics/rubric.py, score_objects)."""
    rubric = reward.owner
    parser = rubric.arguments.get("parser") if isinstance(rubric, Instance) else None
    if parser is None:
        parser = Instance(External("verifiers.Parser"), _NOWHERE)
    info = row.get("info", {})
    if isinstance(info, str):
        try:
            info = json.loads(info)
        except ValueError:
            info = Given("info that is no JSON", _NOWHERE)
    others = {key: Given(f"the column {key}, which reward functions see in some releases", _NOWHERE) for key in row}
    return {
        **others,
        "prompt": [_said(message) for message in _conversation_v0(environment, id, row)],
        "completion": [Said(ReplyText())],
        "answer": row.get("answer", ""),
        "info": info,
        "task": row.get("task", Given("the task", _NOWHERE)),
        "state": Given("the state of a rollout", _NOWHERE),
        **_judging(rubric),
        "parser": parser,
    }


def _said(message: Mapping[str, Any]) -> Value:
    content, role = message.get("content"), message.get("role")
    if isinstance(content, str) and isinstance(role, str):
        return Said(content, role)
    return Given("a message of the prompt", _NOWHERE)


def _judging(rubric: Value) -> dict[str, Value]:
    """What a JudgeRubric gives its functions besides (rubrics/judge_rubric.py)."""
    if not isinstance(rubric, Instance) or kind(rubric, ("JudgeRubric",)) is None:
        return {}
    return {
        "judge": Bound(rubric, "judge"),
        "judge_client": Given("the client of the judge", _NOWHERE),
        "judge_model": judges.argument(rubric, "judge_model", judges.MODEL),
        "judge_prompt": judges.argument(rubric, "judge_prompt", judges.PROMPT),
        "judge_sampling_args": judges.argument(rubric, "judge_sampling_args") or {},
    }


def _returns_list(function: Any) -> bool:
    """Whether a function says that it returns a list, and scores rollouts together (rubrics/rubric.py)."""
    function = function.function if isinstance(function, Bound) else function
    node = function.node if isinstance(function, Function) else None
    said = getattr(node, "returns", None)
    if said is None:
        return False
    named = said.annotation.value if isinstance(said.annotation, cst.Subscript) else said.annotation
    return dotted(named).rpartition(".")[2] in ("list", "List")


def _replies(
    environment: Environment, row: Row, values: Sequence[tuple[Value, float]], raises: float | None
) -> dict[str, Reply]:
    """The gold reply: the answer, as it is or as a parser wants it, where that scores as high as any of these."""
    answer = row.get("answer")
    if not isinstance(answer, str) or not answer.strip():
        return {}
    forms = [answer, f"\\boxed{{{answer}}}", f"<answer>\n{answer}\n</answer>", f"Answer: {answer}"]
    parser = environment.parser
    fields = None if parser is None else parser.arguments.get("fields", parser.arguments.get("0"))
    if parser is not None and isinstance(fields, list) and is_plain(fields):
        wanted = parser.arguments.get("answer_field", "answer")
        names = [each if isinstance(each, str) else each[0] for each in fields]
        forms.insert(0, "\n".join(f"<{n}>\n{answer if n == wanted else '...'}\n</{n}>" for n in names))
    scores: dict[str, float] = {}
    for form in forms:
        try:
            scores[form] = sum(scoring.score(value, raises, form) * weight for value, weight in values)
        except UnsaidError:
            continue
    if any(scoring.is_judged(value) for value, _ in values):
        return {"reference": Reply(text=forms[0])}
    best = max(scores.values(), default=0.0)
    if best <= 0:
        return {}
    return {"reference": Reply(text=next(form for form, score in scores.items() if score == best), reward=best)}
