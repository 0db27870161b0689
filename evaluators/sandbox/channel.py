"""Messages between judge and child: JSON objects, each after its length, on a stream socket. Never pickle: a child is
not trusted, and reading its messages must run none of its code."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
ZYGOTE_ENDED = "the zygote has ended"  # why a supervisor stopped its candidate, in its report
_PREFIX_BYTES = 4


class ChannelError(ValueError):
    """The peer sent what is no message: too long, no JSON, or JSON that is no object."""


class Channel:
    """One end of a message stream. `fds` are the file descriptors that came with the job, in the sender's order.

    A thread may send while another receives; two must not receive at once.
    """

    def __init__(self, stream: socket.socket, fds: Sequence[int] = ()) -> None:
        self.fds = tuple(fds)
        self._stream = stream
        self._received = bytearray()
        self._sending = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message and wait until the kernel has taken it.

        Raises:
            BrokenPipeError, ConnectionResetError: the peer is gone.
            ValueError: the message is longer than `MAX_MESSAGE_BYTES`.
        """
        body = json.dumps(message).encode()
        if len(body) > MAX_MESSAGE_BYTES:
            raise ValueError(f"a message may have {MAX_MESSAGE_BYTES} bytes, this one has {len(body)}")
        with self._sending:
            self._stream.sendall(len(body).to_bytes(_PREFIX_BYTES, "little") + body)

    def receive(self, timeout_s: float | None = None) -> dict[str, Any]:
        """The next message. One that is still incomplete at the timeout is kept for the next call.

        Raises:
            EOFError: the peer is gone.
            TimeoutError: no whole message within `timeout_s`.
            ChannelError: the peer sent what is no message.
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s
        self._fill(_PREFIX_BYTES, end)
        size = int.from_bytes(self._received[:_PREFIX_BYTES], "little")
        if size > MAX_MESSAGE_BYTES:
            raise ChannelError(f"a message of {size} bytes was announced, the limit is {MAX_MESSAGE_BYTES}")
        self._fill(_PREFIX_BYTES + size, end)
        body = bytes(self._received[_PREFIX_BYTES : _PREFIX_BYTES + size])
        del self._received[: _PREFIX_BYTES + size]
        return _decode(body)

    def close(self) -> None:
        self._stream.close()

    def _fill(self, n_bytes: int, end: float | None) -> None:
        """Read until the buffer holds `n_bytes`."""
        while len(self._received) < n_bytes:
            if not _is_readable(self._stream, end):
                raise TimeoutError("no message in time")
            try:
                piece = self._stream.recv(min(1 << 20, n_bytes - len(self._received)))
            except ConnectionResetError:
                piece = b""
            if not piece:
                raise EOFError("the other side has closed the channel")
            self._received += piece


def _is_readable(stream: socket.socket, end: float | None) -> bool:
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    return bool(poll.poll(None if end is None else max(0.0, end - time.monotonic()) * 1000))


def _decode(body: bytes) -> dict[str, Any]:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ChannelError(f"a message is no JSON: {error}") from error
    if not isinstance(message, dict):
        raise ChannelError(f"a message must be a JSON object, got {type(message).__name__}")
    return message
