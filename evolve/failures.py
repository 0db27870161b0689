"""What is in an exception: it may be wrapped as a task's, as a group's, or as another's cause."""

from __future__ import annotations

from collections.abc import Iterator

from db.errors import EvolveError


def find_mendable(error: BaseException) -> EvolveError | None:
    """The EvolveError in an exception: itself, or what a Ray task, a group of tasks or a `raise ... from` wrapped."""
    for current in wrapped_in(error):
        # a RayTaskError may itself pose as the class of its cause
        if isinstance(current, EvolveError) and not isinstance(getattr(current, "cause", None), BaseException):
            return current
    return None


def wrapped_in(error: BaseException) -> Iterator[BaseException]:
    """An exception and all that it wraps, the outermost first."""
    waiting: list[BaseException] = [error]
    seen: set[int] = set()
    while waiting:
        current = waiting.pop(0)
        seen.add(id(current))
        yield current
        inner = [getattr(current, "cause", None), *getattr(current, "exceptions", ()), current.__cause__]
        waiting += [e for e in inner if isinstance(e, BaseException) and id(e) not in seen]
