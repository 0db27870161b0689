"""Calls that go together: a message to an actor costs more than most of what is asked in it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T")

N_UNDER_WAY = 2  # messages: while one is answered the next is on its way
MAX_CALLS = 16  # in a message: the first of them waits for the last


class Mailbox(Generic[T]):
    """What is asked while `N_UNDER_WAY` messages are under way waits, and goes with the next one.

    So a call that meets nobody goes at once and alone, and the busier the actor is the fewer messages it gets.

    Args:
        send: sends calls in one message; answers in their order.
    """

    def __init__(self, send: Callable[[Sequence[T]], Awaitable[Sequence[Any]]]) -> None:
        self._send = send
        self._waiting: list[tuple[T, asyncio.Future[Any]]] = []
        self._under_way: set[asyncio.Task[None]] = set()

    async def call(self, asked: T) -> Any:
        """The answer to a call. Raises what the message raises that it was in."""
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, answered))
        self._post()
        return await answered

    def _post(self) -> None:
        if self._waiting and len(self._under_way) < N_UNDER_WAY:
            message, self._waiting = self._waiting[:MAX_CALLS], self._waiting[MAX_CALLS:]
            task = asyncio.get_running_loop().create_task(self._deliver(message))
            self._under_way.add(task)
            task.add_done_callback(self._delivered)

    def _delivered(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._post()

    async def _deliver(self, message: Sequence[tuple[T, asyncio.Future[Any]]]) -> None:
        try:
            answers = await self._send([asked for asked, _ in message])
        except Exception as error:  # the boundary: whatever went wrong belongs to whoever asked
            for _, answered in message:
                if not answered.done():
                    answered.set_exception(error)
            return
        for (_, answered), value in zip(message, answers, strict=True):
            if not answered.done():  # whoever asked may have gone
                answered.set_result(value)
