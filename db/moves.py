"""Moves: what an attempt changed, in words that mean the same in every program.

An operator says what it did to one program: "BLOCK of softmax_kernel 1024 -> 4096". Names and positions differ between
programs, directions, factors and the values of options do not: the move is "tile x4".
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

MOST_LETTERS = 60
"""Longer words are prose about one program, which teaches nothing about another."""

_NUMBER = re.compile(r"\d+")
_SETTING = re.compile(r"(?P<name>[^\s,]+)(?: of .*)? (?P<old>\S+) -> (?P<new>\S+)")
_PLACES = (  # what stands for one program alone: names of kernels, pointers and axes, lines, how many places there are
    (re.compile(r" in line \d+"), ""),
    (re.compile(r" of (?!axis |exp |exact |division )(?!\d+(?:,|$))\w+"), ""),
    (re.compile(r"^\w+ (?=in (?:one tile|tiles of))"), ""),
    (re.compile(r"^\w+ and \w+ (?=in one walk|lane by lane)"), ""),
    (re.compile(r", walks: \d+"), ""),
    (re.compile(r"^\d+ (?:of )?(?=masks? |exp |exact |division |casts )"), ""),
    (re.compile(r" into \w+"), ""),
    (re.compile(r" (?:in|for the accesses) \w*_\w*"), ""),
)


@lru_cache(maxsize=16384)
def move_of(technique: str, detail: str) -> str:
    """The move of an attempt, or nothing where what it did says nothing about other programs."""
    if technique == "crossover":  # takes what only these two parents have
        return ""
    settings = [_SETTING.fullmatch(part) for part in detail.split(", ")]
    if detail and all(settings):
        return ", ".join(sorted({_turn(found) for found in settings if found}))
    words = detail
    for pattern, other in _PLACES:
        words = pattern.sub(other, words)
    words = " ".join(words.split())
    return words if len(words) <= MOST_LETTERS else ""


@lru_cache(maxsize=16384)
def direction_of(technique: str, detail: str) -> str:
    """The technique with where it went: "tile_size up". All values in one direction are one direction."""
    settings = [_SETTING.fullmatch(part) for part in detail.split(", ")]
    ways = {_way(found["old"], found["new"]) for found in settings if found}
    way = ways.pop() if len(ways) == 1 and all(settings) else _NUMBER.sub("#", move_of(technique, detail))
    return f"{technique} {way}".strip()


def _turn(found: re.Match[str]) -> str:
    name = found["name"].rpartition("/")[2]
    if not name.isupper():
        return f"{name} {found['new']}"
    old, new = found["old"], found["new"]
    if old.isdigit() and new.isdigit() and int(old) and int(new):
        return f"tile x{Fraction(int(new), int(old))}"
    return f"tile {new}"


def _way(old: str, new: str) -> str:
    if not new.isdigit():
        return f"to {new}"
    return "up" if not old.isdigit() or int(new) > int(old) else "down"
