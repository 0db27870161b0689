"""Records that are not what they must be. An archive may come from anywhere, and damage is told as such."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from db.errors import ArchiveError, EvolveError

Reader = TypeVar("Reader")


def tells_damage(reader: type[Reader]) -> type[Reader]:
    """Class decorator for what reads an archive at `self.path`: its public methods raise `ArchiveError` where a record
    cannot be read."""
    for name, member in list(vars(reader).items()):
        if inspect.isfunction(member) and not name.startswith("_") and not hasattr(member, "__isabstractmethod__"):
            setattr(reader, name, _told(member))
    return reader


def _told(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def read(self: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return method(self, *arguments, **options)
        except EvolveError:
            raise
        except (ValueError, TypeError) as error:  # of a record's own checks, of JSON, of an enumeration
            reason = " ".join(str(error).split())[:200]
            raise ArchiveError(
                f"a record in {self.path} is damaged: {reason}", "it was changed by something else than evolve"
            ) from error

    return read
