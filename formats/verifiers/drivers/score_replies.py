"""Runs in Verifiers' environment: scores replies that are known by the rewards of a package.

Its argument is the package's module. Each line of standard input is JSON: `task`, `text` and `calls`. Each line of
standard output is the score: `reward`, or null and a `reason`.
"""

import asyncio
import json
import sys
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.state import state_cls


def message(reply: dict[str, Any]) -> vf.AssistantMessage:
    """`reply` as a model gives it."""
    calls = [vf.ToolCall(id=f"call_{number}", **call) for number, call in enumerate(reply["calls"])]
    return vf.AssistantMessage(content=reply["text"] or None, tool_calls=calls or None)


def rollout(task: vf.Task, reply: dict[str, Any]) -> vf.Trace:
    """The trace of a rollout in which the model gave `reply`."""
    trace = vf.Trace(
        task=vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
        state=state_cls(type(task))(),
        agent=vf.AgentInfo(config=vf.AgentConfig(runtime=vf.SubprocessConfig())),
    )
    said = [*task.data.prompt, message(reply)]
    for number, each in enumerate(said):
        sampled = number == len(said) - 1  # by the model, and not part of the prompt
        trace.nodes.append(vf.MessageNode(parent=number - 1 if number else None, message=each, sampled=sampled))
    return trace


async def scored(task: vf.Task, reply: dict[str, Any]) -> dict[str, object]:
    """What the task's rewards give."""
    trace = rollout(task, reply)
    try:
        await task.score(trace)
    except Exception as error:  # whatever a reward raises fails the rollout
        return {"reward": None, "reason": f"{type(error).__name__}: {error}"}
    return {"reward": trace.reward}


async def main(module: str) -> None:
    """Score what standard input holds, in its order."""
    taskset = vf.load_taskset(vf.taskset_config_type(module).model_validate({"id": module}))
    posed = [json.loads(line) for line in sys.stdin]
    wanted = {each["task"] for each in posed}
    tasks = {str(task.data.id): task for task in taskset if task.data.id in wanted}
    for each in posed:
        print(json.dumps(await scored(tasks[each["task"]], each)), flush=True)


asyncio.run(main(sys.argv[1]))
