"""An earlier conversation (trajectory.json, in Harbor's ATIF) as messages that the task's own instruction follows."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import verifiers.v1 as vf
from pydantic import BaseModel, ValidationError

from .runner.folder import FolderError


class _Call(BaseModel):
    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]


class _Result(BaseModel):
    source_call_id: str | None = None
    content: str | list[dict[str, Any]] | None = None


class _Observation(BaseModel):
    results: list[_Result]


class _Step(BaseModel):
    source: Literal["system", "user", "agent"]
    message: str | list[dict[str, Any]]
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None
    observation: _Observation | None = None


class _Trajectory(BaseModel):
    steps: list[_Step]


def messages(path: Path, instruction: str) -> vf.Messages:
    """The conversation recorded at `path`, and then `instruction`.

    Raises:
        FolderError: it is no such record, or holds something else than text.
    """
    try:
        recorded = _Trajectory.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"])) or "the whole file"
        raise FolderError(f"{path.name} is no trajectory in ATIF: {field}: {first['msg']}") from None
    said: vf.Messages = [message for step in recorded.steps for message in _messages(step)]
    return [*said, vf.UserMessage(content=instruction)]


def _messages(step: _Step) -> Iterator[Any]:
    text = _text(step.message)
    if step.source == "system":
        yield vf.SystemMessage(content=text)
    elif step.source == "user":
        yield vf.UserMessage(content=text)
    else:
        calls = [
            vf.ToolCall(id=call.tool_call_id, name=call.function_name, arguments=json.dumps(call.arguments))
            for call in step.tool_calls or []
        ]
        reasoning = step.reasoning_content
        yield vf.AssistantMessage(content=text or None, reasoning_content=reasoning, tool_calls=calls or None)
    for result in step.observation.results if step.observation else []:
        content = _text(result.content or "")
        if result.source_call_id is None:
            yield vf.UserMessage(content=content)
        else:
            yield vf.ToolMessage(tool_call_id=result.source_call_id, content=content)


def _text(content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    for part in content:
        if part.get("type") != "text":
            raise FolderError(f"trajectory.json holds a part of type {part.get('type')!r}; only text can be shown")
    return "\n".join(str(part["text"]) for part in content)
