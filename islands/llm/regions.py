"""EVOLVE-BLOCK markers: where a file has them, only what is between them may change."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Sequence

from islands.llm.refusals import Refusal, RefusalKind

_MARKER = re.compile(r"^\s*#\s*EVOLVE-BLOCK-(?P<which>START|END)\b")


def key_of(line: str) -> str:
    """A line without whitespace: what is equal for lines that are laid out differently."""
    return "".join(line.split())


def editable_ranges(lines: Sequence[str]) -> list[range]:
    """Indices of the lines that may change: all of them where nothing is marked. A START without END is open-ended."""
    ranges: list[range] = []
    start: int | None = None
    for index, line in enumerate(lines):
        which = _which(line)
        if which == "START" and start is None:
            start = index + 1
        elif which == "END" and start is not None:
            ranges.append(range(start, index))
            start = None
    if start is not None:
        ranges.append(range(start, len(lines)))
    return ranges if any(_which(line) == "START" for line in lines) else [range(len(lines))]


def restored(child: Sequence[str], parent: Sequence[str]) -> list[str] | Refusal:
    """The child's marked parts inside the parent's own text around them.

    Refused where the child has other markers, or changed more than whitespace outside of them.
    """
    if not any(_which(line) == "START" for line in parent):
        return list(child)
    if _markers(child) != _markers(parent):
        return _refusal("Keep every EVOLVE-BLOCK-START and EVOLVE-BLOCK-END comment as it stands, and add none.")
    ours, theirs = editable_ranges(parent), editable_ranges(child)
    result: list[str] = []
    at = at_child = 0
    for mine, other in zip(
        [*ours, range(len(parent), 0)], [*theirs, range(len(child), 0)], strict=True
    ):  # what follows the last part has an end and no inside
        fixed = parent[at : mine.start]
        changed = _first_change(child[at_child : other.start], fixed)
        if changed is not None:
            return _refusal(
                f"Outside of the EVOLVE-BLOCK markers nothing may change, but this did: {changed.strip()!r}."
            )
        result += [*fixed, *child[other.start : other.stop]]
        at, at_child = mine.stop, other.stop
    return result


def has_live_markers(source: str) -> bool:
    """Whether each marker of a source that parses is a comment, not swallowed by a string around it."""
    n_lines = sum(_which(line) is not None for line in source.split("\n"))
    if not n_lines:
        return True
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, SyntaxError):
        return False
    return n_lines == sum(t.type == tokenize.COMMENT and _which(t.string) is not None for t in tokens)


def swallowed() -> Refusal:
    return _refusal("An EVOLVE-BLOCK marker ends up inside a string. Close every string between the markers.")


def _which(line: str) -> str | None:
    found = _MARKER.match(line)
    return found["which"] if found else None


def _markers(lines: Sequence[str]) -> list[str]:
    return [key_of(line) for line in lines if _which(line)]


def _first_change(theirs: Sequence[str], ours: Sequence[str]) -> str | None:
    """The first line of either that the other lacks, whitespace aside."""
    left = [line for line in theirs if line.strip()]
    right = [line for line in ours if line.strip()]
    for mine, other in zip(left, right, strict=False):
        if key_of(mine) != key_of(other):
            return mine
    longer = left if len(left) > len(right) else right
    return longer[min(len(left), len(right))] if len(left) != len(right) else None


def _refusal(reason: str) -> Refusal:
    return Refusal(RefusalKind.OUTSIDE_EVOLVE_BLOCK, reason)
