"""How text that others wrote stands in a prompt: fenced as data, or on one line that starts nothing."""

from __future__ import annotations

import re

LEAST_FENCE = 3
LONGEST_LINE = 400
_TICKS = re.compile(r"`+")


def quoted(text: str, language: str = "") -> str:
    """A text inside a fence that is longer than any run of backticks in it, so that it cannot end its own fence."""
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    fence = "`" * max(LEAST_FENCE, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def one_line(text: object, most: int = LONGEST_LINE) -> str:
    """A text on one line, without backticks and cut short: it can open neither a fence nor a heading."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in str(text)).replace("`", "'").split())
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"


def numbered(source: str) -> str:
    """A source with the number of each line before it."""
    return "\n".join(f"{number:>4}  {line}" for number, line in enumerate(source.rstrip().split("\n"), 1))
