"""Actors without Ray: the classes themselves, called in this process by the words that actors are called by."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any


def here(actor_class: Any, *arguments: Any, **named: Any) -> Here:
    """An instance of an actor's class, as `actor_class.remote(...)` would start it elsewhere."""
    return Here(actor_class.__ray_actor_class__(*arguments, **named))


class Here:
    """`actor.method.remote(...)` is a coroutine that calls the method when it is awaited."""

    def __init__(self, instance: Any) -> None:
        self._instance = instance

    def __getattr__(self, name: str) -> _Method:
        return _Method(getattr(self._instance, name))


class _Method:
    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method

    def remote(self, *arguments: Any, **named: Any) -> Coroutine[Any, Any, Any]:
        return self._call(arguments, named)

    async def _call(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        result = self._method(*arguments, **named)
        return await result if inspect.isawaitable(result) else result
