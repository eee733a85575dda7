"""Rows: a prompt with its tools as the request that Gym sends to a model, in the terms of OpenAI's Responses API."""

from typing import Any

from envconvert.formats.taskset import Media, Message, ReplyTask, Text, Tool, ToolCall, ToolResult


def request(task: ReplyTask) -> dict[str, Any]:
    """What a model is asked: `responses_create_params`."""
    items: list[dict[str, Any]] = []
    for item in task.prompt:
        items.append(_item(item, len(items)))
    asked: dict[str, Any] = {"input": items}
    if task.tools:
        asked["tools"] = [_tool(tool) for tool in task.tools]
    return asked


def _item(item: Message | ToolCall | ToolResult, number: int) -> dict[str, Any]:
    if isinstance(item, ToolCall):
        id = item.id or f"call_{number}"
        return {"type": "function_call", "call_id": id, "name": item.name, "arguments": item.arguments}
    if isinstance(item, ToolResult):
        return {"type": "function_call_output", "call_id": item.id, "output": item.text}
    # Without its type, Gym 0.6 and later may take a message for something else.
    said = {"type": "message", "role": item.role}
    if isinstance(item.content, str) or item.role == "assistant":  # of an assistant Gym takes text alone
        return {**said, "content": item.text}
    return {**said, "content": [_part(part) for part in item.content]}


def _part(part: Text | Media) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    if part.kind == "image":
        return {"type": "input_image", "image_url": part.url, "detail": part.detail or "auto"}
    if part.kind == "video":
        return {"type": "input_video", "video_url": part.url}
    place = "file_data" if part.url.startswith("data:") else "file_url"
    return {"type": "input_file", place: part.url, **({"filename": part.name} if part.name else {})}


def _tool(tool: Tool) -> dict[str, Any]:
    """All of its keys must be there."""
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description or "",
        "parameters": tool.parameters or {"type": "object", "properties": {}},
        "strict": tool.strict,
    }
