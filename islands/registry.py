"""Policies by name: what a configuration may choose among."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TypeVar

from db.errors import ConfigError

T = TypeVar("T")


def look_up(kind: str, name: str, known: Mapping[str, type[T]]) -> type[T]:
    """The class that is registered under a name.

    Raises:
        ConfigError: there is none of this name; the hint has the nearest one, or all.
    """
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(known))}"
    raise ConfigError(f"unknown {kind} {name!r}", hint)
