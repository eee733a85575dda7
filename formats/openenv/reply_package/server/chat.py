"""What a model is asked, in the terms of OpenAI's chat completions. Nothing else of a task may be shown to it."""

from collections.abc import Mapping, Sequence
from typing import Any


def messages(prompt: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages of a prompt. A call is part of the assistant's message that it follows."""
    said: list[dict[str, Any]] = []
    for number, item in enumerate(prompt):
        if item["type"] == "call":
            if not said or said[-1]["role"] != "assistant":
                said.append({"role": "assistant", "content": None})
            said[-1].setdefault("tool_calls", []).append(_call(item, number))
        elif item["type"] == "result":
            said.append({"role": "tool", "tool_call_id": item["id"], "content": item["text"]})
        else:
            content = item["content"]
            parts = content if isinstance(content, str) else [_part(part) for part in content]
            said.append({"role": item["role"], "content": parts})
    return said


def tools(offered: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The tools that the model may call."""
    return [{"type": "function", "function": dict(tool)} for tool in offered]


def _call(item: Mapping[str, Any], number: int) -> dict[str, Any]:
    function = {"name": item["name"], "arguments": item["arguments"]}
    return {"id": item.get("id") or f"call_{number}", "type": "function", "function": function}


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    kind, url = part["kind"], part["url"]
    if kind == "file":
        place = "file_data" if url.startswith("data:") else "file_url"
        name = {"filename": part["name"]} if "name" in part else {}
        return {"type": "file", "file": {place: url, **name}}
    detail = {"detail": part["detail"]} if "detail" in part else {}
    return {"type": f"{kind}_url", f"{kind}_url": {"url": url, **detail}}
