"""Runs in an environment of Verifiers, shut in: reports what a package of others holds, which only running it tells.

Its argument is JSON: `module`, `arguments`, `limit` (or null), `rows`, the most that are read, and `hooks`, the methods
of v0 that are looked for. What it reports goes to descriptor 3, a line of JSON each: an `environment`; a `row` of
environment `of`, with the names of the values that are no JSON as `unsaid`; that there is more, as `endless`; and at
last `end`, the number of lines before.
"""

import inspect
import itertools
import json
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import version
from typing import Any

SOURCE = "/envconvert/source"

Line = dict[str, Any]


def kind(value: object, known: type) -> tuple[str, str | None, list[type]]:
    """The class of Verifiers that a value is of, `known` where it is of that; its own; and those before the former."""
    line = type(value).__mro__
    of = known if known in line else next(each for each in line if each.__module__.startswith("verifiers"))
    return of.__name__, None if line[0] is of else line[0].__name__, list(line[: line.index(of)])


def row_line(row: Mapping[str, Any], **place: Any) -> Line:
    """A row; a value of it that is no JSON by name alone."""
    said, unsaid = {}, {}
    for name, value in row.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            unsaid[name] = type(value).__name__
        else:
            said[name] = value
    return {"row": said, "unsaid": unsaid, **place}


# v0.


def leaves(rubric: Any) -> Iterator[Any]:
    """The rubrics that score in `rubric`."""
    inner = getattr(rubric, "rubrics", None)
    if isinstance(inner, list):
        for each in inner:
            yield from leaves(each)
    else:
        yield rubric


def rewards(rubric: Any) -> Iterator[Line]:
    """The functions of a rubric of v0."""
    for each in leaves(rubric):
        functions = getattr(each, "funcs", None) or getattr(each, "reward_funcs", [])
        weights = getattr(each, "weights", None) or getattr(each, "reward_weights", [])
        for function, weight in zip(functions, weights, strict=True):
            is_group = getattr(each, "_is_group_func", None)
            yield {
                "name": getattr(function, "__name__", type(function).__name__),
                "weight": float(weight),
                "group": bool(is_group(function)) if is_group else False,
            }


def v0(module: Any, asked: dict[str, Any]) -> Iterator[Line]:
    """What load_environment makes."""
    import verifiers as vf

    limit, most = asked["limit"], asked["rows"]
    made = module.load_environment(**asked["arguments"])
    environments = made.envs if isinstance(made, vf.EnvGroup) else [made]
    for number, environment in enumerate(environments):
        of, own, before = kind(environment, vf.SingleTurnEnv)
        tools = getattr(environment, "tool_defs", None) or getattr(environment, "oai_tools", None) or []
        judges = [type(each).__name__ for each in leaves(environment.rubric) if hasattr(each, "judge_client")]
        yield {
            "environment": {
                "kind": of,
                "own": own,
                "rewards": list(rewards(environment.rubric)),
                "overridden": [name for name in asked["hooks"] if any(name in vars(each) for each in before)],
                "tools": [str(getattr(each, "name", None) or each) for each in tools],
                "turns": getattr(environment, "max_turns", None),
                "judges": judges,
            }
        }
        for split, name in (("train", "dataset"), ("test", "eval_dataset")):
            if getattr(environment, name, None) is None and getattr(environment, f"{name}_source", None) is None:
                continue
            dataset = getattr(environment, f"get_{name}")()
            if limit is None and len(dataset) > most:
                yield {"endless": f"{name} has {len(dataset)}"}
                return
            for row in itertools.islice(dataset, limit):
                yield row_line(row, of=number, split=split)


# v1.


def v1(module: Any, asked: dict[str, Any]) -> Iterator[Line]:
    """What the package's taskset loads."""
    import verifiers.v1 as vf
    from verifiers.v1.utils.decorators import discover_decorated

    name, limit, most = module.__name__, asked["limit"], asked["rows"]
    config = vf.taskset_config_type(name).model_validate({"id": name, **asked["arguments"]})
    taskset = vf.load_taskset(config)
    if limit is None and not taskset.bounded:
        yield {"endless": f"{type(taskset).__name__} is infinite"}
        return
    of, own, _ = kind(taskset, vf.Taskset)
    task = vf.task_type(name)
    environment = vf.environment_class(name)
    harness = vf.default_harness_id(name)
    hooks = [each for each in ("setup", "finalize", "stage_verifier", "runtime_env") if differs(task, vf.Task, each)]
    players = environment.__name__ if not environment.__module__.startswith("verifiers") else None
    first = True
    for number, each in enumerate(itertools.islice(taskset, limit)):
        if number == most and limit is None:
            yield {"endless": f"{type(taskset).__name__} has more than {most}"}
            return
        if first:
            first = False
            yield {
                "environment": {
                    "kind": of,
                    "own": own,
                    "rewards": [
                        {"name": hook.__name__, "weight": float(getattr(hook, "_vf_weight", 1.0)), "group": False}
                        for hook in each.hooks("reward")
                    ],
                    "overridden": hooks + [hook.__name__ for hook in each.hooks("reward") if takes_runtime(hook)],
                    "tools": [type(tool).__name__ for tool in (*task.toolsets(each.config), *tools(taskset))],
                    "turns": None,
                    "judges": [str(judge.id) for judge in each.config.judges],
                    "players": players,
                    "harness": None if harness == "bash" else harness,
                    "intercepts": [hook.__name__ for hook in discover_decorated(each, "intercept")],
                }
            }
        said = each.data.model_dump(mode="json")
        said["prompt"] = each.data.model_dump(mode="json", exclude_none=True).get("prompt")
        yield row_line(said, of=0, split="")


def differs(one: type, other: type, name: str) -> bool:
    """Whether a class has a method of its own."""
    return getattr(one, name, None) is not getattr(other, name, None)


def takes_runtime(hook: Any) -> bool:
    """Whether a reward scores what stands in a container: without one, Verifiers would leave it out."""
    parameter = inspect.signature(hook).parameters.get("runtime")
    return parameter is not None and parameter.default is inspect.Parameter.empty


def tools(taskset: Any) -> list[Any]:
    """The toolsets that all tasks share."""
    return list(type(taskset).toolsets(taskset.config))


def where(error: BaseException) -> str:
    """Where in the package something was raised."""
    places = [
        f"{frame.filename.removeprefix(SOURCE + '/')}, line {frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(f"{SOURCE}/")
    ]
    return places[-1] if places else "verifiers"


def main(asked: dict[str, Any]) -> None:
    """Report the package."""
    os.set_inheritable(3, False)
    sys.path[:0] = [SOURCE, f"{SOURCE}/src"]
    count = 0
    with open(3, "w", encoding="utf-8") as report:
        module = import_module(asked["module"])
        way = v0 if version("verifiers").startswith("0.1.") else v1
        for line in way(module, asked):
            report.write(json.dumps(line) + "\n")
            count += 1
        report.write(json.dumps({"end": count}) + "\n")


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except BaseException as error:
        traceback.print_exc()
        print(f"{where(error)}: {type(error).__name__}: {error}".replace("\n", " "), file=sys.stderr)
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)  # whatever threads it has, and whatever it would do at its end
