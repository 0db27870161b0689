"""Splices of text: how a proposal is made without printing a syntax tree."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Span(NamedTuple):
    """A half-open range of characters of a source."""

    start: int
    end: int


class Edit(NamedTuple):
    """Characters [start, end) of the source become `text`; an empty range inserts."""

    start: int
    end: int
    text: str


def splice(source: str, edits: Iterable[Edit]) -> str | None:
    """The source with all edits applied, or None when two of them contradict each other.

    The same replacement twice counts once. Insertions at one place stand in the order in which they were given.
    """
    pieces: list[str] = []
    cursor = 0
    previous: Edit | None = None
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        if edit == previous and edit.start < edit.end:
            continue
        if edit.start < cursor:
            return None
        previous = edit
        pieces += (source[cursor : edit.start], edit.text)
        cursor = edit.end
    return "".join([*pieces, source[cursor:]])


def indent_of(source: str, position: int) -> str:
    """The white space that opens the line of a position."""
    start = source.rfind("\n", 0, position) + 1
    line = source[start:]
    return line[: len(line) - len(line.lstrip(" \t"))]


def line_end(source: str, position: int) -> int:
    """Where the line of a position ends: the index of its newline, or the length of the source."""
    end = source.find("\n", position)
    return len(source) if end < 0 else end
