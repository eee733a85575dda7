"""Score replies by a server of NeMo Gym, in its environment.

Arguments: the server's module, its class, the config as JSON. Each line of standard input is JSON: the fields of a row
and a reply. Each line of standard output is the reward.
"""

import asyncio
import importlib
import json
import logging
import sys
import typing
from unittest.mock import MagicMock

from nemo_gym.server_utils import ServerClient

_PARAMETERS = {"input": [{"role": "user", "content": "Answer."}]}


def _response(text: str) -> dict[str, typing.Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": content}
    said = {"id": "r", "created_at": 0.0, "model": "none", "object": "response", "output": [message]}
    return {**said, "parallel_tool_calls": False, "tool_choice": "auto", "tools": []}


async def _main(module: str, name: str, config: str) -> None:
    kind = getattr(importlib.import_module(module), name)
    made = typing.get_type_hints(kind)["config"]
    common = {"host": "127.0.0.1", "port": 1, "entrypoint": "app.py", "name": "server"}
    server = kind(config=made(**common, **json.loads(config)), server_client=MagicMock(spec=ServerClient))
    request = typing.get_type_hints(kind.verify)["body"]
    for line in sys.stdin:
        row, reply = json.loads(line)
        body = {"responses_create_params": _PARAMETERS, **row, "response": _response(reply)}
        print((await server.verify(request.model_validate(body))).reward, flush=True)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(_main(*sys.argv[1:]))
