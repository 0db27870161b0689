"""A language model that a script speaks for: OpenAI's chat endpoint on 127.0.0.1, of the standard library alone.

with ScriptedModel(lambda turns: Said("nothing to add", delay_s=0.5)) as model:
    ...  # evolve run softmax --model <model.name>
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self


class Turn(NamedTuple):
    """One message of a conversation."""

    role: str
    content: str


class Said(NamedTuple):
    """What the script answers, and how long it takes to."""

    text: str
    delay_s: float = 0.0


Script = Callable[[Sequence[Turn]], Said]
"""Is given every conversation as it was sent. Called from many threads."""


class ScriptedModel:
    """The server, while the `with` lasts. A thread for each connection: good for hundreds of them."""

    def __init__(self, script: Script) -> None:
        self._server = _Server(script)

    @property
    def name(self) -> str:
        """As `--model` takes it."""
        return f"openai/scripted,api_base=http://127.0.0.1:{self._server.server_address[1]}/v1,unpriced"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, script: Script) -> None:
        self.script = script
        super().__init__(("127.0.0.1", 0), _Conversation)


class _Conversation(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = self.server.script([Turn(one["role"], one["content"]) for one in body["messages"]])
        time.sleep(said.delay_s)
        raw = json.dumps(_completion(said.text, body)).encode()
        with contextlib.suppress(ConnectionError):  # whoever asked may be gone
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


def _completion(text: str, body: dict[str, Any]) -> dict[str, Any]:
    """A good answer; a token is taken for four characters."""
    n_in = sum(len(one["content"]) for one in body["messages"]) // 4
    n_out = len(text) // 4
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": "scripted",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": n_in, "completion_tokens": n_out, "total_tokens": n_in + n_out},
    }
