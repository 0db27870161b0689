"""Where a block applies: first exactly, then with whitespace left aside if only one place fits."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from islands.llm.blocks import Block, Edit
from islands.llm.placeholders import left_out, placeholder_in
from islands.llm.refusals import Refusal, RefusalKind
from islands.llm.regions import editable_ranges, key_of

TAB = 4  # columns: what models write for a level
N_SHOWN = 6  # lines of the parent that a refusal quotes


class Splice(NamedTuple):
    """Lines `first` up to and without `last` of a source give way to others. Both count from 0."""

    first: int
    last: int
    lines: list[str]


def splice_of(block: Block, source: Sequence[str]) -> Splice | Refusal:
    """Where a block applies: of the ways to read it that fit the source, the one that searches for most."""
    answers = [_splice(block.number, edit, source) for edit in block.readings]
    found = [answer for answer in answers if isinstance(answer, Splice)]
    return max(found, key=lambda splice: splice.last - splice.first) if found else answers[0]


def _splice(number: int, edit: Edit, source: Sequence[str]) -> Splice | Refusal:
    wanted = edit.search
    if not any(line.strip() for line in wanted):
        return Refusal(
            RefusalKind.EMPTY_SEARCH,
            f"Block {number} searches for nothing. To insert lines, SEARCH for the line beside them and repeat it in "
            "the replacement.",
        )
    editable = editable_ranges(source)
    for places in (_exact_places(wanted, source), _loose_places(wanted, source)):
        inside = [place for place in places if _lies_in(place, editable)]
        if len(inside) == 1:
            return _placed(number, edit, inside[0], source)
        if inside:
            return _ambiguous(number, inside)
        if places:
            return _outside(number)
    return _not_found(number, wanted, source)


def _placed(number: int, edit: Edit, place: range, source: Sequence[str]) -> Splice | Refusal:
    missing = placeholder_in(edit.replace, source)
    if missing:
        return left_out(missing, f"The replacement of block {number}")
    found = source[place.start : place.stop]
    if list(found) == edit.search:
        return Splice(place.start, place.stop, edit.replace)
    lines = _reindented(edit, found)
    if lines is None:
        return Refusal(
            RefusalKind.INDENTATION,
            f"Block {number} fits lines {place.start + 1} to {place.stop}, but its indentation is not theirs shifted: "
            "copy the lines with their indentation.",
        )
    return Splice(place.start, place.stop, lines)


# ------------------------------------------------------------------------------------------------------------- places


def _exact_places(wanted: list[str], source: Sequence[str]) -> list[range]:
    n = len(wanted)
    return [range(at, at + n) for at in range(len(source) - n + 1) if list(source[at : at + n]) == wanted]


def _loose_places(wanted: list[str], source: Sequence[str]) -> list[range]:
    """Where the lines that are not blank are equal but for their whitespace."""
    keys = [key for line in wanted if (key := key_of(line))]
    filled = [(index, key) for index, line in enumerate(source) if (key := key_of(line))]
    have = [key for _, key in filled]
    n = len(keys)
    starts = [at for at in range(len(have) - n + 1) if have[at] == keys[0] and have[at : at + n] == keys]
    return [range(filled[at][0], filled[at + n - 1][0] + 1) for at in starts]


def _lies_in(place: range, editable: list[range]) -> bool:
    return any(part.start <= place.start and place.stop <= part.stop for part in editable)


# -------------------------------------------------------------------------------------------------------- indentation


def _reindented(edit: Edit, found: Sequence[str]) -> list[str] | None:
    """The replacement as it is indented at the place; None where one indentation of the block stands for two there."""
    theirs = [_indent(line) for line in edit.search if line.strip()]
    ours = [_indent(line) for line in found if line.strip()]
    moved: dict[str, str] = {}
    for mine, place in zip(theirs, ours, strict=True):
        if moved.setdefault(mine, place) != place:
            return None
    lines = [_moved(line, moved) for line in edit.replace]
    return None if None in lines else [line for line in lines if line is not None]


def _moved(line: str, moved: dict[str, str]) -> str | None:
    """A line moved as its indentation is, or as the nearest one is that the block searches for."""
    text = line.strip()
    indent = _indent(line)
    if not text:
        return ""
    if indent in moved:
        return moved[indent] + text
    smaller = [known for known in moved if _columns(known) <= _columns(indent)]
    nearest = max(smaller, key=_columns) if smaller else min(moved, key=_columns)
    columns = _columns(moved[nearest]) + _columns(indent) - _columns(nearest)
    return " " * columns + text if columns >= 0 else None


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _columns(indent: str) -> int:
    return len(indent.expandtabs(TAB))


# ----------------------------------------------------------------------------------------------------------- refusals


def _ambiguous(number: int, places: list[range]) -> Refusal:
    lines = ", ".join(str(place.start + 1) for place in places[:N_SHOWN])
    return Refusal(
        RefusalKind.AMBIGUOUS,
        f"The SEARCH text of block {number} stands in the program {len(places)} times, at lines {lines}. Add lines "
        "before or after it until it stands there once.",
    )


def _outside(number: int) -> Refusal:
    return Refusal(
        RefusalKind.OUTSIDE_EVOLVE_BLOCK,
        f"Block {number} edits lines outside of the EVOLVE-BLOCK markers. Only what is between them may change.",
    )


def _not_found(number: int, wanted: list[str], source: Sequence[str]) -> Refusal:
    missing = placeholder_in(wanted, source)
    if missing:
        return left_out(missing, f"The SEARCH text of block {number}")
    near = _nearest(wanted, source)
    shown = "\n".join(f"    {source[index]}" for index in near)
    hint = f" Nearest are these, from line {near.start + 1} on:\n{shown}" if near else ""
    return Refusal(
        RefusalKind.NOT_FOUND,
        f"The SEARCH text of block {number} stands nowhere in the program. Copy whole lines of it, unchanged.{hint}",
    )


def _nearest(wanted: list[str], source: Sequence[str]) -> range:
    """The lines around those that have most in common with what was searched for; empty where nothing is like it."""
    keys = [key for line in wanted if (key := key_of(line))]
    have = [key_of(line) for line in source]
    hits = list(_hits(keys, have))
    if not hits:
        return range(0)
    n = min(max(len(keys), 1), N_SHOWN)
    first = max(hits, key=lambda at: (sum(at <= hit < at + n for hit in hits), -at))
    return range(first, min(first + n, len(source)))


def _hits(keys: list[str], have: list[str]) -> Iterator[int]:
    """Indices of lines that are equal to one that was searched for, or much like it."""
    for key in dict.fromkeys(keys[:N_SHOWN]):
        for like in difflib.get_close_matches(key[:200], have, n=2, cutoff=0.7):
            yield have.index(like)
