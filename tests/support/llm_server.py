"""A language model's server that tests start: OpenAI's chat endpoint over real HTTP on 127.0.0.1, scripted.

    with LlmServer([answer("hello"), failing(429, retry_after_s=0.1)]) as server:
        ...  # a client with api_base=server.api_base

The n-th request gets the n-th reply, the last one over and over. It serves thousands of connections from one thread.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

CRLF = "\r\n"


@dataclass(frozen=True)
class Asked:
    """One request as it arrived. Header names are in lower case."""

    headers: Mapping[str, str]
    body: Mapping[str, Any]


@dataclass(frozen=True)
class Reply:
    """What the server does with one request: waits, then answers, hangs, or breaks the connection."""

    body: str = ""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    hangs: bool = False
    breaks_after: int | None = None  # bytes of the answer that are sent before the connection breaks


Script = Sequence[Reply] | Callable[[Asked], Reply]


def answer(
    text: str | None,
    *,
    finish_reason: str = "stop",
    usage: tuple[int, int] | None = (100, 50),
    delay_s: float = 0.0,
    reasoning: str | None = None,
) -> Reply:
    """A good answer: its text and its tokens in and out."""
    message = {"role": "assistant", "content": text}
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    body: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
    }
    if usage is not None:
        body["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return Reply(json.dumps(body), delay_s=delay_s)


def failing(status: int, message: str = "no", *, retry_after_s: float | None = None, code: str | None = None) -> Reply:
    """An error as providers word it."""
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    return Reply(json.dumps({"error": {"message": message, "type": "error", "code": code}}), status, headers)


def hanging() -> Reply:
    """Reads the request and never answers."""
    return Reply(hangs=True)


def broken(after: int = 0) -> Reply:
    """Closes the connection after so many bytes of a good answer."""
    return Reply(answer("cut").body, breaks_after=after)


def echoing_key(status: int = 401) -> Callable[[Asked], Reply]:
    """Refuses, and says the key that it was given, as some providers do."""

    def reply(asked: Asked) -> Reply:
        key = asked.headers.get("authorization", "").removeprefix("Bearer ")
        return failing(status, f"Incorrect API key provided: {key}. Find yours at https://example.com.")

    return reply


class LlmServer:
    """The server, while the `with` lasts."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._asked: list[Asked] = []
        self._n_open = 0
        self.n_most_at_once = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.port = 0

    @property
    def api_base(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def asked(self) -> list[Asked]:
        """Every request that arrived, in order."""
        return list(self._asked)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait(10)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=4096, limit=2**24)
        )
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; whether the connection stays."""
        asked = await _read(reader)
        self._n_open += 1
        self.n_most_at_once = max(self.n_most_at_once, self._n_open)
        try:
            return await self._reply(asked, writer)
        finally:
            self._n_open -= 1

    async def _reply(self, asked: Asked, writer: asyncio.StreamWriter) -> bool:
        reply = self._next(asked)
        await asyncio.sleep(3600 if reply.hangs else reply.delay_s)
        raw = _encoded(reply)
        writer.write(raw if reply.breaks_after is None else raw[: reply.breaks_after])
        await writer.drain()
        return reply.breaks_after is None

    def _next(self, asked: Asked) -> Reply:
        self._asked.append(asked)
        if callable(self._script):
            return self._script(asked)
        return self._script[min(len(self._asked), len(self._script)) - 1]


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    lines = [line.partition(":") for line in head.split(CRLF)[1:] if line]
    headers = {name.strip().lower(): value.strip() for name, _, value in lines}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(headers, json.loads(body))


def _encoded(reply: Reply) -> bytes:
    body = reply.body.encode()
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **reply.headers}
    head = "".join(f"{name}: {value}{CRLF}" for name, value in headers.items())
    return f"HTTP/1.1 {reply.status} Scripted{CRLF}{head}{CRLF}".encode() + body
