"""Jobs that the sandbox tests run in children."""

from typing import Any


def echo(channel: Any, payload: dict[str, Any]) -> None:
    channel.send({"echo": payload})
