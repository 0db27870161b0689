"""Work that goes on beside what this process does otherwise."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def beside(work: Callable[[], T]) -> Future[T]:
    """What a function answers or raises, in a thread of its own. Nobody waits for it at the end of the process."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:  # the boundary of the thread: whoever asks for the answer hears of it
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return answer
