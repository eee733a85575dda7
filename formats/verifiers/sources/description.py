"""What a package is, as far as its source says: the environment that it makes, its rows, and how replies are scored."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from envconvert.formats.files import UnreadableSourceError
from envconvert.formats.modules import Module
from envconvert.formats.rules import Packaged
from envconvert.formats.taskset import NONE
from envconvert.formats.verifiers.sources import functions, parsers
from envconvert.formats.verifiers.sources.dataset import Datasets, Fetch, Splits, Table
from envconvert.formats.verifiers.sources.definitions import Package
from envconvert.formats.verifiers.sources.evaluation import Evaluation
from envconvert.formats.verifiers.sources.evaluator import Evaluator
from envconvert.formats.verifiers.sources.exceptions import RaisedError
from envconvert.formats.verifiers.sources.functions import BUILT_IN
from envconvert.formats.verifiers.sources.generation import ALPHA, BETA, V0, Generation, generation
from envconvert.formats.verifiers.sources.operations import TooLargeError, is_plain
from envconvert.formats.verifiers.sources.parsers import PARSERS, argument
from envconvert.formats.verifiers.sources.texts import UnsaidError
from envconvert.formats.verifiers.sources.values import (
    MISSING,
    Bound,
    Class,
    External,
    Function,
    Instance,
    Scope,
    Unknown,
    Value,
    View,
    Where,
)

_RENAMED = {"extract_boxed_answer": parsers.boxed, "extract_hash_answer": parsers.hashed}


class Doubt(msgspec.Struct, frozen=True):
    """Why tasks are not known, or not carried: the code of the loss, where, and what."""

    code: str
    field: str
    what: str


class Reward(msgspec.Struct, frozen=True):
    """A function that scores, its weight, and the rubric or class that it belongs to."""

    name: str
    function: Function | Bound | Instance
    weight: float
    owner: Instance | Class | None = None


class RanReward(msgspec.Struct, frozen=True):
    """A reward function, as an environment that ran names it."""

    name: str
    weight: float
    group: bool
    """Whether it scores several rollouts together."""


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """What an environment says of itself when it runs (drivers/report_package.py)."""

    kind: str
    own: str | None
    rewards: tuple[RanReward, ...]
    overridden: tuple[str, ...]
    tools: tuple[str, ...]
    turns: int | None
    judges: tuple[str, ...]
    players: str | None = None
    harness: str | None = None
    """Its own, of v1."""
    intercepts: tuple[str, ...] = ()


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """One environment of a package: an environment of v0, or a taskset of v1."""

    kind: str
    """The class of Verifiers that it is of."""
    own: str | None = None
    """The package's own class, where it is of one."""
    rows: Mapping[str, Table | list[Instance]] = {}
    """By split: a table of v0's rows, a list of v1's tasks."""
    data: tuple[str, ...] = ()
    """Where the rows are from, in words."""
    system: str | None = None
    few_shot: tuple[Mapping[str, Value], ...] = ()
    parser: Instance | None = None
    rewards: tuple[Reward, ...] = ()
    tools: tuple[str, ...] = ()
    turns: int | None = None
    doubts: tuple[Doubt, ...] = ()
    """Why none of its rows is known."""
    hindrances: tuple[Doubt, ...] = ()
    """Why its tasks are not carried, whatever their rows are."""
    taskset: Class | None = None
    """Of v1."""
    ran: Ran | None = None
    """None: it was not run."""
    number: int = 0
    """Among those of its package."""
    is_told: bool = True
    """Whether `rewards` are all that it has; else only running it scores."""
    code: Packaged | None = None
    """How its own code scores a reply, but for the row; None: it was not run, or that cannot be hosted."""
    unshipped: str = ""
    """Why not."""


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a package without running it."""

    name: str
    version: str | None
    about: str
    licence: str | None
    generation: Generation
    entry: str
    dependencies: tuple[str, ...]
    arguments: Mapping[str, Value]
    """Of `load_environment`, or the fields of a taskset's config, with their defaults."""
    environments: tuple[Environment, ...]
    evaluator: Evaluator


def describe(root: Path, fetch: Fetch, given: Mapping[str, str] = NONE) -> Description:
    """What the package at `root` is, with the arguments that are `given`. Raises `UnreadableSourceError`."""
    package = Package(root)
    entry = package.entry
    module = None if entry is None else package.module(entry)
    if entry is None or module is None:
        raise UnreadableSourceError(root, "no module of it uses Verifiers")
    reading = _Reading(package, fetch, {name: value_of(text) for name, text in given.items()})
    evaluator = reading.evaluator
    try:
        scope = evaluator.scope(entry)
        assert scope is not None
        for inner in _inner(module, entry) if "load_environment" not in scope.names else ():
            if "load_environment" in (deeper := evaluator.scope(inner) or scope).names:
                entry, scope = inner, deeper  # what is imported has none, and verifiers would not load it so
        texts = [file.read_text("utf-8", "replace") for file in sorted(module.file.parent.glob("*.py"))]
        if module.file.name != "__init__.py":
            texts = [module.file.read_text("utf-8", "replace")]
        found = generation(module, texts, scope, package.project)
        if found is None:
            raise UnreadableSourceError(
                root, f"{module.place} has neither load_environment nor a taskset or a harness of Verifiers"
            )
        arguments = reading.arguments(found, scope)
        made = reading.environments(found, scope)
    except TooLargeError as error:
        raise UnreadableSourceError(module.place, str(error)) from None
    project = package.project
    licence = project.get("license")
    asked = project.get("dependencies")
    return Description(
        name=package.name,
        version=project["version"] if isinstance(project.get("version"), str) else None,
        about=str(project.get("description") or ""),
        licence=licence if isinstance(licence, str) else None,
        generation=found,
        entry=entry,
        dependencies=tuple(str(each) for each in asked) if isinstance(asked, list) else (),
        arguments=arguments,
        environments=made,
        evaluator=evaluator,
    )


def value_of(text: str) -> Value:
    """An argument as it is given: JSON, else a text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _inner(module: Module, entry: str) -> list[str]:
    """Modules of the package `entry` in which load_environment stands."""
    files = sorted(module.file.parent.glob("*.py")) if module.file.name == "__init__.py" else []
    return [f"{entry}.{file.stem}" for file in files if b"\ndef load_environment" in file.read_bytes()[: 1 << 21]]


class _Reading:
    """The reading of one package."""

    def __init__(self, package: Package, fetch: Fetch, given: Mapping[str, Value]) -> None:
        self._given = given
        self._data = Datasets(package.root, fetch)
        calls = {**BUILT_IN, **self._data.known}
        for name, function in _RENAMED.items():
            calls |= {f"verifiers.{name}": function, f"verifiers.utils.data_utils.{name}": function}
        self.evaluator = Evaluator(package, _WithClasses(calls), self._attribute, self._method)
        self._package = package

    def _attribute(self, evaluator: Evaluation, value: Value, name: str, where: Where) -> Value:
        if isinstance(value, Instance) and name not in ("[]", "["):
            return value.arguments[name] if name in value.arguments else _of_instance(value, name)
        return self._data.attribute(evaluator, value, name, where)

    def _method(
        self, evaluator: Evaluation, bound: Bound, given: list[Value], named: dict[str, Value], where: Where
    ) -> Value:
        found = functions.method(evaluator, bound, given, named, where)
        if found is MISSING:
            found = parsers.method(evaluator, bound, given, named, where)
        if found is not MISSING or isinstance(bound.owner, Instance):
            return found
        return self._data.method(evaluator, bound, given, named, where)

    def arguments(self, found: Generation, scope: Scope) -> Mapping[str, Any]:
        """The arguments that choose the tasks, those that are given in the place of their defaults.

        Raises `UnreadableSourceError`, for one that is not among them.
        """
        entry = scope.names.get("load_environment")
        taskset = _exported(scope, ("Taskset",))
        config = _config(taskset) if taskset is not None else None
        if isinstance(entry, Function):
            params = entry.node.params
            names = {each.name.value for each in (*params.params, *params.kwonly_params)}
            defaults, takes_any = entry.defaults, params.star_kwarg is not None
        else:
            defaults, takes_any = {} if config is None else _fields(config), False
            names = set(defaults)
        for name in self._given:
            if name not in names and not takes_any:
                there = ", ".join(sorted(names)) or "none"
                raise UnreadableSourceError(self._package.root, f"it has no argument {name!r}; its arguments: {there}")
        return {name: value for name, value in {**defaults, **self._given}.items() if is_plain(value)}

    def environments(self, found: Generation, scope: Scope) -> tuple[Environment, ...]:
        """What the package makes."""
        if found.name == V0:
            return self._v0(scope)
        if found.name in (ALPHA, BETA):
            doubt = Doubt("verifiers-generation", self._package.name, found.name)
            return (Environment(kind="unread", doubts=(doubt,)),)
        return (self._v1(scope),)

    # v0.

    def _v0(self, scope: Scope) -> tuple[Environment, ...]:
        entry = scope.names["load_environment"]
        try:
            made = self.evaluator.call(entry, [], dict(self._given))
        except UnsaidError as error:
            made = Unknown(error.what, error.where or entry.where)
        except RaisedError as error:
            made = Unknown(f"load_environment raises {error}", entry.where)
        except RecursionError:
            made = Unknown("load_environment nests too deep", entry.where)
        if isinstance(made, Instance):
            inner = made.arguments.get("envs", made.arguments.get("0"))
            if _last(made) == "EnvGroup" and isinstance(inner, list):
                return tuple(
                    self._environment(each) if isinstance(each, Instance) else self._unmade(each, entry)
                    for each in inner
                )
            return (self._environment(made),)
        return (self._unmade(made, entry),)

    def _unmade(self, made: Value, entry: Function) -> Environment:
        what = made if isinstance(made, Unknown) else Unknown("what load_environment returns", entry.where)
        return Environment(kind="unknown", doubts=(executes("the environment", what),))

    def _environment(self, made: Instance) -> Environment:
        kind = _last(made)
        own = made.made_of.name if isinstance(made.made_of, Class) else None
        said = made.arguments
        tools = said.get("tools")
        doubts: list[Doubt] = []
        rows = self._rows(made, doubts)
        hindrances = list(_hindrances(made, kind, own))
        system = said.get("system_prompt")
        if not (system is None or isinstance(system, str)):
            hindrances.append(executes("the system prompt", unknown(system, made.where)))
            system = None
        few = said.get("few_shot")
        if few is not None and not (is_plain(few) and isinstance(few, list)):
            hindrances.append(executes("few_shot", unknown(few, made.where)))
            few = None
        rubric = said.get("rubric")
        rewards = _rewards(rubric, made.where, hindrances)
        parser = said.get("parser")
        if parser is None and isinstance(rubric, Instance):
            parser = rubric.arguments.get("parser")
        turns = said.get("max_turns")
        return Environment(
            kind=kind,
            own=own,
            rows=rows,
            data=tuple(dict.fromkeys(table.source for table in rows.values())),
            system=system,
            few_shot=tuple(few or ()),
            parser=parser if isinstance(parser, Instance) else None,
            rewards=tuple(rewards),
            tools=tuple(_name(each) for each in tools) if isinstance(tools, list) else (),
            turns=turns if isinstance(turns, int) else None,
            doubts=tuple(doubts),
            hindrances=tuple(hindrances),
        )

    def _rows(self, made: Instance, doubts: list[Doubt]) -> dict[str, Table]:
        rows: dict[str, Table] = {}
        for name, split in (("dataset", "train"), ("eval_dataset", "test")):
            value = made.arguments.get(name)
            if isinstance(value, (Function, Bound)):  # a builder of 0.1.9 and later
                value = self._call(value)
            if isinstance(value, Splits):
                value = Unknown(f"which split of {value.arguments['path']} is meant", value.where)
            if isinstance(value, Table):
                rows[split] = value
            elif value is not None:
                doubts.append(data_doubt(f"the rows of {name}", unknown(value, made.where)))
        if not rows and not doubts:
            doubts.append(executes("its rows", Unknown("a class that finds them itself", made.where)))
        return rows

    def _call(self, function: Value) -> Value:
        where = function.where if isinstance(function, Function) else Where("", 0)
        try:
            return self.evaluator.call(function, [], {})
        except UnsaidError as error:
            return Unknown(error.what, error.where or where)
        except RaisedError as error:
            return Unknown(f"it raises {error}", where)

    # v1.

    def _v1(self, scope: Scope) -> Environment:
        taskset = _exported(scope, ("Taskset",))
        if taskset is None:
            harness = _exported(scope, ("Harness",))
            name = harness.name if harness is not None else self._package.name
            return Environment(kind="Harness", own=name, doubts=(Doubt("verifiers-harness", name, name),))
        kind = next((name.rpartition(".")[2] for name in taskset.external), "Taskset")
        kinds = {name.rpartition(".")[2] for name in taskset.external}
        wraps = sorted(kinds & {"HarborTaskset", "NeMoGymTaskset", "OpenEnvTaskset", "TextArenaTaskset"})
        config = _config(taskset)
        fields = {**({} if config is None else _fields(config)), **self._given}
        if wraps:
            what = self._wrapped(wraps[0], fields)
            return Environment(kind=wraps[0], own=taskset.name, doubts=(Doubt("verifiers-wraps", taskset.name, what),))
        hindrances: list[Doubt] = []
        env = _exported(scope, ("Env", "SingleAgentEnv", "UserSimEnv"))
        if env is not None:
            hindrances.append(Doubt("verifiers-players", env.name, f"{env.name}, {_where(env)}"))
        loaded = self._loaded(taskset, fields)
        if not isinstance(loaded, list) or not all(isinstance(each, Instance) for each in loaded):
            bad = (
                next((each for each in loaded if isinstance(each, Unknown)), None)
                if isinstance(loaded, list)
                else loaded
            )
            doubt = data_doubt("what load() gives", unknown(bad, _where(taskset)))
            return Environment(
                kind=kind, own=taskset.name, doubts=(doubt,), hindrances=tuple(hindrances), taskset=taskset
            )
        task = loaded[0].made_of if loaded else None
        rewards: list[Reward] = []
        if isinstance(task, Class):
            rewards, more = v1_hooks(task, taskset)
            hindrances += more
        return Environment(
            kind=kind,
            own=taskset.name,
            rows={"": loaded},
            data=tuple(dict.fromkeys(self._data.read)) or ("rows in the code",),
            rewards=tuple(rewards),
            hindrances=tuple(hindrances),
            taskset=taskset,
        )

    def _loaded(self, taskset: Class, fields: Mapping[str, Value]) -> Value:
        load = taskset.find("load")
        if load is None or not isinstance(load[0], Function):
            return Unknown("a load() of another package", _where(taskset))
        config = Instance(External("verifiers.TasksetConfig"), _where(taskset), attributes=dict(fields))
        instance = Instance(taskset, _where(taskset), attributes={"config": config})
        try:
            made = self.evaluator.call(Bound(instance, "load", load[0]), [], {})
            return self.evaluator.items(made, load[0].where)
        except UnsaidError as error:
            return Unknown(error.what, error.where or load[0].where)
        except RaisedError as error:
            return Unknown(f"load() raises {error}", load[0].where)
        except RecursionError:
            return Unknown("load() nests too deep", load[0].where)

    def _wrapped(self, kind: str, fields: Mapping[str, Value]) -> str:
        names = [f"{name} {_shown(fields[name], self._package.root)}" for name in sorted(fields) if name in _WRAPPED]
        return f"{kind.removesuffix('Taskset')} ({', '.join(names)})" if names else kind.removesuffix("Taskset")


_WRAPPED = ("dataset", "env", "base_url", "resets", "repo", "game")


class _WithClasses(dict[str, Any]):
    """Calls by dotted name, in which the classes of Verifiers make instances."""

    def get(self, name: str, default: Any = None) -> Any:
        found = super().get(name)
        if found is None and (name.startswith("verifiers.") or name in _MADE) and _CLASS.search(name):
            return lambda evaluator, given, named, where: _instance(name, given, named, where)
        return default if found is None else found


_CLASS = re.compile(r"(?:^|\.)(?:[A-Z]\w*|reward|metric|stop|intercept|tool|cleanup|teardown)$")
_MADE = ("openai.AsyncOpenAI", "openai.OpenAI", "types.SimpleNamespace")


def _instance(name: str, given: list[Value], named: dict[str, Value], where: Where) -> Instance:
    positional = {str(index): value for index, value in enumerate(given)}
    attributes = dict(named) if name == "types.SimpleNamespace" else {}
    return Instance(External(name), where, {**positional, **named}, attributes)


def _of_instance(value: Instance, name: str) -> Value:
    if name in ("data", "config") and any("Task" in kind for kind in value.kinds):
        return value.arguments.get("0" if name == "data" else "1")
    if name == "prompt_text" and any(kind.endswith("TaskData") for kind in value.kinds):
        prompt = value.attributes.get("prompt", value.arguments.get("prompt"))
        return prompt if isinstance(prompt, str) else MISSING
    if parsers.kind(value, (*PARSERS, *_RUBRICS, "Judge")) or value.kinds[:1] in _WITH_METHODS:
        return Bound(value, name)
    return MISSING


_WITH_METHODS = (("re.Pattern",), ("functools.partial",), ("difflib.SequenceMatcher",), ("logging.Logger",))


def data_of(task: Instance) -> Mapping[str, Value]:
    """The fields of the data of a task of v1."""
    data = task.arguments.get("0")
    return {**data.attributes, **data.arguments} if isinstance(data, Instance) else {}


def _last(value: Instance) -> str:
    for name in value.kinds:
        if name.startswith("verifiers"):
            return name.rpartition(".")[2]
    return value.kinds[0] if value.kinds else "object"


def _name(value: Value) -> str:
    return value.name if isinstance(value, (Function, Class, External, Bound)) else "?"


def _where(made: Class) -> Where:
    return Where(made.module.place, made.module.line(made.node))


def _shown(value: Value, root: Path) -> str:
    path = getattr(value, "path", None)
    return path.name if isinstance(path, Path) else repr(value)[:80] if is_plain(value) else "?"


def unknown(value: Value, where: Where) -> Unknown:
    """`value` where it is unknown, else that it is no such thing as was expected."""
    return value if isinstance(value, Unknown) else Unknown("what is computed there", where)


def executes(what: str, why: Unknown) -> Doubt:
    """That only running the code tells `what`."""
    return Doubt("verifiers-executes", f"{why.where.file}:{why.where.line}", f"{what}: {why.what}")


def data_doubt(what: str, why: Unknown) -> Doubt:
    """That rows are not known: they are on the Hub, which does not give them, or only running the code tells."""
    if why.what.startswith("the rows of load_dataset"):
        return Doubt("verifiers-data", f"{why.where.file}:{why.where.line}", why.what.removeprefix("the rows of "))
    return executes(what, why)


HOOKS = ("env_response", "is_completed", "rollout", "setup_state", "get_model_response", "format_prompt")
"""Methods of an environment of v0 that one which overrides them answers the model by."""
_TURNS = ("MultiTurnEnv", "TextArenaEnv", "ReasoningGymEnv", "GymEnv", "OpenEnvEnv", "RLMEnv", "BrowserEnv")
_TOOLS = ("ToolEnv", "StatefulToolEnv", "MCPEnv")
_BOXES = ("SandboxEnv", "PythonEnv", "CliAgentEnv", "HarborEnv")


def _hindrances(made: Instance, kind: str, own: str | None) -> list[Doubt]:
    """Why one reply does not do for the environment `made`."""
    overridden = [name for name in HOOKS if isinstance(made.made_of, Class) and made.made_of.find(name) is not None]
    return hindrances(f"{made.where.file}:{made.where.line}", kind, own, overridden)


def hindrances(where: str, kind: str, own: str | None, overridden: Sequence[str]) -> list[Doubt]:
    """Why one reply does not do for an environment of v0: its class, its own, and the hooks that this overrides."""
    shown = f"{own} ({kind})" if own else kind
    if kind in _TOOLS:
        return [Doubt("verifiers-tools", where, shown)]
    if kind in _BOXES:
        return [Doubt("verifiers-sandbox", where, shown)]
    if kind in _TURNS or overridden:
        return [Doubt("verifiers-turns", where, f"{shown}: {', '.join(overridden)}" if overridden else shown)]
    if kind != "SingleTurnEnv":
        return [Doubt("verifiers-turns", where, shown)]
    return []


_RUBRICS = ("Rubric", "JudgeRubric", "MathRubric", "ToolRubric", "RubricGroup")


def _rewards(rubric: Value, where: Where, hindrances: list[Doubt]) -> list[Reward]:
    if rubric is None:
        return []
    name = parsers.kind(rubric, _RUBRICS)
    if not isinstance(rubric, Instance) or name is None:
        kinds = f" ({rubric.kinds[0]})" if isinstance(rubric, Instance) and rubric.kinds else ""
        hindrances.append(executes(f"the rubric{kinds}", unknown(rubric, where)))
        return []
    if name == "RubricGroup":
        inner = argument(rubric, "rubrics", 0)
        if not isinstance(inner, list):
            hindrances.append(executes("the rubrics of a group", unknown(inner, where)))
            return []
        return [each for one in inner for each in _rewards(one, where, hindrances)]
    judged = name == "JudgeRubric"
    functions = argument(rubric, "funcs", None if judged else 0) or []
    weights = argument(rubric, "weights", None if judged else 1)
    if isinstance(weights, View):
        weights = list(getattr(weights.table, weights.name)())
    for given in (functions, weights or []):
        if not isinstance(given, list):
            hindrances.append(executes("the functions and weights of the rubric", unknown(given, rubric.where)))
            return []
    weights = weights or [1.0] * len(functions)
    if len(weights) != len(functions):
        hindrances.append(executes("the weights of the rubric", Unknown("as many as functions", rubric.where)))
        return []
    pairs = [*zip(functions, weights, strict=True)]
    if name == "MathRubric":
        pairs.append((Bound(rubric, "correct_answer"), 1.0))
    pairs += rubric.attributes.get("added functions", [])
    made: list[Reward] = []
    for function, weight in pairs:
        if not isinstance(weight, (int, float)):
            hindrances.append(executes("the weight of a reward function", unknown(weight, rubric.where)))
        elif not isinstance(function, (Function, Bound, Instance)):
            hindrances.append(executes("a reward function", unknown(function, rubric.where)))
        else:
            shown = _name(function) if not isinstance(function, Instance) else "partial"
            made.append(Reward(shown, function, float(weight), rubric))
    return made


def _exported(scope: Scope, ends: tuple[str, ...]) -> Class | None:
    """The class in `__all__` whose base in Verifiers ends so."""
    names = scope.names.get("__all__")
    names = names if isinstance(names, list) and is_plain(names) else list(scope.names)
    for name in names:
        value = scope.names.get(name)
        if isinstance(value, Class) and any(
            each.startswith("verifiers") and each.endswith(ends) for each in value.external
        ):
            return value
    return None


def _config(taskset: Class) -> Class | None:
    """The config in the parameters of its base."""
    return parameter(taskset, "Config")


def parameter(taskset: Class, end: str) -> Class | None:
    """The class in the parameters of its base, or of that one's, whose own base in Verifiers ends so."""
    for parameters in taskset.scope.names.get("[]", []):
        for each in parameters:
            if isinstance(each, Class) and any(name.endswith(end) for name in each.external):
                return each
    bases = (base for base in taskset.bases if isinstance(base, Class))
    return next((found for base in bases if (found := parameter(base, end))), None)


def _fields(config: Class) -> dict[str, Value]:
    """The fields of a config and their defaults."""
    inherited = [_fields(base) for base in config.bases if isinstance(base, Class)]
    made: dict[str, Value] = {}
    for each in reversed(inherited):
        made |= each
    names = config.scope.names
    return made | {name: names[name] for name in names.get("()", []) if name in names}


def v1_hooks(task: Class, taskset: Class) -> tuple[list[Reward], list[Doubt]]:
    """The rewards of a task class, and what else it has that one reply does not do for."""
    rewards: list[Reward] = []
    doubts: list[Doubt] = []
    names: dict[str, Class] = {}
    for each in task.line:
        if isinstance(each, Class):
            names |= {name: each for name in each.scope.names if name not in names}
    for name, owner in names.items():
        value = owner.scope.names[name]
        if not isinstance(value, Function):
            continue
        where = f"{value.where.file}:{value.where.line}"
        for decorator in value.decorators:
            hook = decorator.made_of if isinstance(decorator, Instance) else decorator
            if not isinstance(hook, External) or not hook.name.startswith("verifiers."):
                continue
            arguments = decorator.arguments if isinstance(decorator, Instance) else {}
            if hook.name.endswith(".reward"):
                weight = arguments.get("weight", 1.0)
                if isinstance(weight, (int, float)):
                    rewards.append(Reward(name, value, float(weight), task))
                else:
                    doubts.append(executes(f"the weight of {name}", unknown(weight, value.where)))
            elif hook.name.endswith(".intercept"):
                doubts.append(Doubt("verifiers-intercept", where, name))
        if name == "toolsets":
            doubts.append(Doubt("verifiers-tools", where, task.name))
        elif name in ("setup", "finalize", "stage_verifier", "runtime_env"):
            doubts.append(Doubt("verifiers-sandbox", where, f"{task.name}.{name}"))
    if (found := taskset.find("toolsets")) is not None and isinstance(found[0], Function):
        doubts.append(Doubt("verifiers-tools", f"{found[0].where.file}:{found[0].where.line}", taskset.name))
    return rewards, doubts
