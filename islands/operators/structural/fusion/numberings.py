"""Offsets as mixed-radix numbers: which digits of a kernel's variables are which digits of an offset, and how the
digits of two kernels that number the same elements correspond."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

from islands.operators.structural.fusion.lane_indices import Digit, Index, Variable, digits_of, of_atom, plus, times


class Piece(NamedTuple):
    """A digit of an offset: `stride` times a digit of a variable, or times what that lacks of its largest value."""

    stride: int
    size: int
    variable: Variable
    divisor: int
    is_reversed: bool

    def low(self, size: int) -> Piece:
        return self._replace(size=size)

    def high(self, size: int) -> Piece:
        """What is left of it above its lowest `size` values."""
        return self._replace(stride=self.stride * size, size=self.size // size, divisor=self.divisor * size)


def pieces_of(index: Index, extents: Mapping[Variable, int], others: Iterable[Index] = ()) -> list[Piece] | None:
    """The digits of an offset by stride, fine enough to write `others` with them too.

    None where two elements might have the same offset, or where digits overlap.

    Args:
        extents: how many values each variable takes.
    """
    digits = digits_of(index)
    if digits is None or not {d.variable for d in digits} <= set(extents):
        return None
    seen = {digit for other in (index, *others) for digit in digits_of(other) or {}}
    found: list[Piece] = []
    for variable, extent in extents.items():
        cuts = _cuts([d for d in seen if d.variable == variable], extent)
        if cuts is None:
            return None
        for low, high in pairwise(cuts):
            factor = sum(f * low // d.divisor for d, f in digits.items() if d.variable == variable and _has(d, low))
            found.append(Piece(abs(factor), high // low, variable, low, factor < 0))
    found.sort(key=lambda p: p.stride)
    beyond = 1  # of which every later stride is at least as large
    for piece in found:
        if piece.stride < beyond:
            return None
        beyond = piece.stride * piece.size
    return found


def starts_at_zero(index: Index, pieces: Iterable[Piece]) -> bool:
    """Whether the lowest offset is zero: what reversed digits lack is the constant."""
    return index.constant == sum(p.stride * (p.size - 1) for p in pieces if p.is_reversed)


def _has(digit: Digit, value: int) -> bool:
    return digit.divisor <= value and (digit.size is None or value < digit.divisor * digit.size)


def _cuts(digits: list[Digit], extent: int) -> list[int] | None:
    """Where digits of a variable begin and end, each a divisor of the next; None where they are not."""
    edges = {1, extent, *(d.divisor for d in digits), *(d.divisor * d.size for d in digits if d.size is not None)}
    cuts = sorted(edges)
    return cuts if cuts[-1] == extent and all(high % low == 0 for low, high in pairwise(cuts)) else None


class Correspondence(NamedTuple):
    """Pairs of digits with the same place in an offset: those of one kernel and those of the other."""

    pairs: tuple[tuple[Piece, Piece], ...]

    def translated(self, index: Index) -> Index | None:
        """An index of the first kernel in the digits of the second; None where its digits are none of these."""
        digits = digits_of(index)
        result = Index(index.constant, is_wide=index.is_wide)
        if digits is None or not {d.variable for d in digits} <= {a.variable for a, _ in self.pairs}:
            return None
        for digit, factor in digits.items():
            inside = [(a, b) for a, b in self.pairs if a.variable == digit.variable and _has(digit, a.divisor)]
            size = math.prod(a.size for a, _ in inside)
            if digit.size not in (None, size) or any(a.divisor % digit.divisor for a, _ in inside):
                return None
            for mine, other in inside:
                term = times(Index(factor * mine.divisor // digit.divisor), _as_index(mine, other))
                result = plus(result, term) if term is not None else result
        return merged(result)


def _as_index(mine: Piece, other: Piece) -> Index:
    digit = of_atom(Digit(other.variable, other.divisor, other.size))
    same = mine.is_reversed == other.is_reversed
    return digit if same else plus(Index(other.size - 1), digit, -1)


def correspondence(mine: list[Piece], others: list[Piece]) -> Correspondence | None:
    """How two numberings of the same offsets correspond; None where these are not the same offsets."""
    pairs: list[tuple[Piece, Piece]] = []
    left, right = list(reversed(mine)), list(reversed(others))
    while left and right:
        a, b = left.pop(), right.pop()
        size = min(a.size, b.size)
        if a.stride != b.stride or a.size % size or b.size % size:
            return None
        pairs.append((a.low(size), b.low(size)))
        left += [a.high(size)] if a.size > size else []
        right += [b.high(size)] if b.size > size else []
    return Correspondence(tuple(pairs)) if not left and not right else None


def merged(index: Index) -> Index:
    """The index with neighbouring digits of one variable as one digit, where their factors allow it."""
    digits = dict(digits_of(index) or {})
    while True:
        found = next(((a, b) for a in digits for b in digits if _follows(a, digits[a], b, digits[b])), None)
        if found is None:
            return Index(index.constant, frozenset(digits.items()), index.is_wide)
        low, high = found
        factor = digits.pop(low)
        digits.pop(high)
        digits[Digit(low.variable, low.divisor, (low.size or 1) * (high.size or 1))] = factor


def _follows(low: Digit, low_factor: int, high: Digit, high_factor: int) -> bool:
    if low.variable != high.variable or low.size is None or high.size is None:
        return False
    return high.divisor == low.divisor * low.size and high_factor == low_factor * low.size
