"""A model that is none: an OpenAI-compatible endpoint on loopback with one reply, for agents that need no model."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_REPLY: dict[str, Any] = {
    "id": "stand-in",
    "object": "chat.completion",
    "created": 0,
    "model": "stand-in",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Done."}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


@contextmanager
def stand_in() -> Iterator[str]:
    """Serve until the block ends; gives the base URL, which ends in /v1."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _stream() -> bytes:
    """The reply as server-sent events: the message as one chunk, the end as another."""
    [choice] = _REPLY["choices"]
    begin = {"index": 0, "delta": choice["message"], "finish_reason": None}
    end = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    chunks = [{**_REPLY, "object": "chat.completion.chunk", "choices": [part]} for part in (begin, end)]
    return b"".join(b"data: %s\n\n" % event for event in [*(json.dumps(chunk).encode() for chunk in chunks), b"[DONE]"])


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        streamed = bool(asked.get("stream"))
        body = _stream() if streamed else json.dumps(_REPLY).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if streamed else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: standard error is for what went wrong."""
