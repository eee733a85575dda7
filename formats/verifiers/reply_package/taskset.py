"""The taskset: a task for each line of taskset.jsonl, whose reply is scored by the line's rule."""

import asyncio
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import verifiers.v1 as vf

from .grade import Graded, grade
from .tools import Offers, ReplyData

_FILE = Path(__file__).with_name("taskset.jsonl")


class ReplyTaskConfig(vf.TaskConfig):
    """What verifiers must know of a task before there is a rollout."""

    has_tools: bool = False
    """The task's own, not to be chosen: verifiers asks the class of a task for its tools, with this."""


class ReplyTask(vf.Task[ReplyData, vf.State, ReplyTaskConfig]):
    """A prompt that a model replies to once.

    What a trace records of it is what the model is shown: its rule, and the replies that are known, are read from the
    file when they are needed.
    """

    def __init__(self, data: ReplyData, config: ReplyTaskConfig | None = None) -> None:
        """Make the task; whether it has tools goes where `toolsets` finds it."""
        chosen = config or ReplyTaskConfig()
        super().__init__(data, chosen.model_copy(update={"has_tools": bool(data.tools)}))

    @classmethod
    def toolsets(cls, config: ReplyTaskConfig) -> list[vf.Toolset]:
        """The server that offers the task's tools, where it has some."""
        return [*super().toolsets(config), *([Offers(vf.ToolsetConfig())] if config.has_tools else [])]

    @property
    def key(self) -> str:
        """Its id, which is the same on every machine."""
        return str(self.data.id)

    @vf.stop  # type: ignore[untyped-decorator]  # verifiers is not marked as typed
    async def replied(self, trace: vf.Trace) -> bool:
        """Whether the model has replied."""
        return bool(trace.num_turns)

    @vf.stop  # type: ignore[untyped-decorator]
    async def called(self, response: vf.Response) -> bool:
        """Whether the reply calls tools. It ends the rollout before whoever runs the model could execute a call."""
        return bool(response.message.tool_calls)

    @vf.reward  # type: ignore[untyped-decorator]
    async def reward(self, trace: vf.Trace) -> float:
        """What the rule gives for the reply; its named parts are metrics. A rule that cannot be evaluated raises."""
        graded = await self._grade(_reply(trace))
        trace.record_metrics(graded.parts)
        return graded.reward

    async def validate(self, runtime: vf.Runtime) -> bool | None:
        """Whether the reference has a reward of 1.0 or more; None where there is no reference."""
        known = _line(self.key).get("replies", {}).get("reference")
        if known is None:
            return None
        graded = await self._grade([_message(known.get("text", ""), known.get("calls", []))])
        return graded.reward >= 1.0

    async def _grade(self, reply: str | list[dict[str, Any]]) -> Graded:
        return await asyncio.to_thread(grade, _line(self.key)["rule"], reply)  # a rule may take seconds


class ReplyTasksetConfig(vf.TasksetConfig):
    """Nothing but what every taskset has."""

    task: ReplyTaskConfig = ReplyTaskConfig()


class ReplyTaskset(vf.Taskset[ReplyTask, ReplyTasksetConfig]):
    """The tasks of taskset.jsonl, in its order."""

    def load(self) -> Iterator[ReplyTask]:
        """Yield the tasks one by one."""
        for id in _places():
            yield ReplyTask(_data(_line(id)), self.config.task)


def _reply(trace: vf.Trace) -> str | list[dict[str, Any]]:
    """The last reply as the model gave it: `last_reply` has no calls, and no space at its ends."""
    if trace.root_reply is not None:
        return str(trace.root_reply)
    last = trace.assistant_messages[-1:]
    return [_message(said.content, [call.model_dump() for call in said.tool_calls or []]) for said in last]


def _message(text: str | None, calls: list[dict[str, Any]]) -> dict[str, Any]:
    """A message by the model, for the grader."""
    return {"role": "assistant", "content": text, "tool_calls": calls}


@cache
def _places() -> dict[str, int]:
    """Where the line of each task begins in the file."""
    places: dict[str, int] = {}
    with _FILE.open("rb") as lines:
        lines.readline()  # of the taskset as a whole
        place = lines.tell()
        for line in lines:
            places[json.loads(line)["id"]] = place
            place += len(line)
    return places


def _line(id: str) -> dict[str, Any]:
    with _FILE.open("rb") as lines:
        lines.seek(_places()[id])
        line: dict[str, Any] = json.loads(lines.readline())
    return line


def _data(line: dict[str, Any]) -> ReplyData:
    return ReplyData(
        id=line["id"],
        name=line["id"],
        prompt=list(_messages(line["prompt"])),
        timeout=vf.TaskTimeout(agent=line.get("limits", {}).get("agent")),
        tools=line.get("tools", []),
    )


def _messages(items: list[dict[str, Any]]) -> Iterator[vf.Message]:
    """The prompt as messages. Calls that stand one after the other are of one message, with the words before them."""
    calls: list[vf.ToolCall] = []
    words: str | None = None
    for number, item in enumerate(items):
        kind = item["type"]
        if kind == "call":
            id = item.get("id") or f"call_{number}"
            calls.append(vf.ToolCall(id=id, name=item["name"], arguments=item["arguments"]))
            continue
        if words is not None or calls:
            yield vf.AssistantMessage(content=words, tool_calls=calls or None)
            words, calls = None, []
        if kind == "result":
            yield vf.ToolMessage(tool_call_id=item["id"], content=item["text"])
        elif item["role"] == "assistant":
            words = _text(item["content"])
        elif item["role"] == "user":
            yield vf.UserMessage(content=_content(item["content"]))
        else:
            yield vf.SystemMessage(content=_content(item["content"]))
    if words is not None or calls:
        yield vf.AssistantMessage(content=words, tool_calls=calls or None)


def _text(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def _content(content: str | list[dict[str, Any]]) -> vf.MessageContent:
    if isinstance(content, str):
        return content
    return [
        vf.TextContentPart(text=part["text"])
        if part["type"] == "text"
        else vf.ImageUrlContentPart(image_url=vf.ImageUrlSource(url=part["url"]))
        for part in content
    ]
