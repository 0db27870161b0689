"""SEARCH/REPLACE blocks: their grammar.

    <<<<<<< SEARCH
    lines that the parent has
    =======
    lines that take their place
    >>>>>>> REPLACE

What is between the markers may itself look like a marker, in a string. So a block is read in every way that its
markers allow, and the text of the parent decides.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from islands.llm.fences import is_fence
from islands.llm.refusals import Refusal, RefusalKind

SEARCH = "<<<<<<< SEARCH"
DIVIDER = "======="
REPLACE = ">>>>>>> REPLACE"

_SEARCH = re.compile(r"^\s*<{5,9}\s*SEARCH\s*:?\s*$", re.IGNORECASE)
_DIVIDER = re.compile(r"^\s*={7}\s*$")
_SLOPPY_DIVIDER = re.compile(r"^\s*={5,9}\s*$")
_REPLACE = re.compile(r"^\s*>{5,9}\s*REPLACE\s*$", re.IGNORECASE)
_CONFLICT = re.compile(r"^\s*(?:<{7}|>{7})(?:\s|$)")

MOST_BLOCKS = 50
MOST_READINGS = 16

EXAMPLE = f"Write {SEARCH}, the lines to find, {DIVIDER}, the new lines, {REPLACE}, each marker on a line of its own."


class Edit(NamedTuple):
    """One way to read a block: lines to find, and lines that take their place."""

    search: list[str]
    replace: list[str]


class Block(NamedTuple):
    """A block with every way to read it; more than one where a line of its code looks like a divider."""

    number: int  # from 1
    readings: list[Edit]


def is_search(line: str) -> bool:
    return _SEARCH.match(line) is not None


def has_conflict_markers(lines: Sequence[str]) -> bool:
    """Whether lines begin as markers do, whatever follows."""
    return any(_CONFLICT.match(line) for line in lines)


def read_blocks(lines: Sequence[str], parent_lines: Sequence[str]) -> list[Block] | Refusal:
    """All blocks of an answer, of which there is at least one.

    A SEARCH marker inside a block belongs to its code where the parent has such a line; elsewhere the block before it
    lacks its end.
    """
    starts = [index for index, line in enumerate(lines) if is_search(line)]
    if len(starts) > MOST_BLOCKS:
        reason = (
            f"The answer has {len(starts)} blocks, at most {MOST_BLOCKS} are read. Write the whole program instead."
        )
        return Refusal(RefusalKind.TOO_LONG, reason)
    is_code = any(is_search(line) for line in parent_lines)
    blocks: list[Block] = []
    begin = 0
    for at, end in enumerate([*starts[1:], len(lines)]):
        inside = lines[starts[begin] + 1 : end]
        readings = _readings(inside)
        is_last = end == len(lines)
        if not readings and is_code and not is_last:
            continue  # this marker was code: the block goes on
        if not readings:
            return _broken(len(blocks) + 1, inside, is_last)
        blocks.append(Block(len(blocks) + 1, readings))
        begin = at + 1
    return blocks


def _readings(inside: Sequence[str]) -> list[Edit]:
    """None where a marker is missing. The last REPLACE ends a block: those before it are code."""
    ends = [index for index, line in enumerate(inside) if _REPLACE.match(line)]
    if not ends:
        return []
    body = inside[: ends[-1]]
    dividers = _matching(_DIVIDER, body) or _matching(_SLOPPY_DIVIDER, body)
    return [Edit(_unfenced(body[:index]), _unfenced(body[index + 1 :])) for index in dividers[:MOST_READINGS]]


def _matching(pattern: re.Pattern[str], lines: Sequence[str]) -> list[int]:
    return [index for index, line in enumerate(lines) if pattern.match(line)]


def _unfenced(lines: Sequence[str]) -> list[str]:
    """Without the fence that some models put around each half of a block."""
    filled = [index for index, line in enumerate(lines) if line.strip()]
    if len(filled) < 2 or not (is_fence(lines[filled[0]]) and is_fence(lines[filled[-1]])):
        return list(lines)
    return list(lines[filled[0] + 1 : filled[-1]])


def _broken(number: int, inside: Sequence[str], is_last: bool) -> Refusal:
    has_end = any(_REPLACE.match(line) for line in inside)
    if is_last and not has_end:
        return Refusal(
            RefusalKind.CUT_OFF,
            f"The answer ends inside block {number}, before its {REPLACE}. Write all blocks again, shorter: "
            "only the lines that change, and little prose.",
        )
    missing = DIVIDER if has_end else REPLACE
    return Refusal(RefusalKind.MALFORMED_BLOCK, f"Block {number} has no line {missing}. {EXAMPLE}")
