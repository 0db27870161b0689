"""How the digits of two numberings of the same offsets correspond, against counting."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from islands.operators.structural.fusion.lane_indices import (
    Digit,
    Index,
    Programs,
    Variable,
    digits_of,
    of_atom,
    plus,
    times,
)
from islands.operators.structural.fusion.numberings import Correspondence, correspondence, pieces_of, starts_at_zero

ELEMENT = Variable(Programs(0), None)
ROW, COLUMN = Variable(Programs(1), None), Variable(Programs(2), None)


def value_of(index: Index, values: dict[Variable, int]) -> int:
    digits = digits_of(index)
    assert digits is not None
    parts = ((f, values[d.variable] // d.divisor, d.size) for d, f in digits.items())
    return index.constant + sum(f * (n if size is None else n % size) for f, n, size in parts)


def numbering(rng: random.Random, sizes: list[int], strides: list[int], names: list[Variable]) -> Index:
    """An offset of digits of these sizes and strides, dealt out to variables in any order, some of them reversed."""
    order = rng.sample(range(len(sizes)), len(sizes))
    seen = dict.fromkeys(names, 1)
    index = Index(0)
    for place in order:
        name = names[0] if place == order[0] else rng.choice(names)
        digit = of_atom(Digit(name, seen[name], sizes[place]))
        seen[name] *= sizes[place]
        digit = plus(Index(sizes[place] - 1), digit, -1) if rng.random() < 0.4 else digit
        term = times(Index(strides[place]), digit)
        assert term is not None
        index = plus(index, term)
    return index


def extents_of(index: Index) -> dict[Variable, int]:
    found: dict[Variable, int] = {}
    for digit in digits_of(index) or {}:
        found[digit.variable] = max(found.get(digit.variable, 1), digit.divisor * (digit.size or 1))
    return found


def correspondence_of(mine: Index, other: Index) -> Correspondence | None:
    pieces = [pieces_of(index, extents_of(index)) for index in (mine, other)]
    assert pieces[0] and pieces[1] and starts_at_zero(mine, pieces[0]) and starts_at_zero(other, pieces[1])
    return correspondence(pieces[0], pieces[1])


@pytest.mark.parametrize("seed", range(40))
def test_an_element_of_one_kernel_is_found_by_the_variables_of_the_other(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice((2, 3, 4, 5)) for _ in range(rng.randint(1, 4))]
    padding = rng.choice((1, 1, 2))
    strides = [math.prod(sizes[:i]) * padding ** (i > 1) for i in range(len(sizes))]
    mine = numbering(rng, sizes, strides, [ELEMENT])
    other = numbering(rng, sizes, strides, [ROW, COLUMN])
    found = correspondence_of(mine, other)
    element = None if found is None else found.translated(of_atom(Digit(ELEMENT)))
    assert element is not None
    extents = extents_of(other)
    seen = set()
    for numbers in itertools.product(*map(range, extents.values())):
        values = dict(zip(extents, numbers, strict=True))
        seen.add(n := value_of(element, values))
        assert value_of(mine, {ELEMENT: n}) == value_of(other, values)
    assert seen == set(range(math.prod(sizes)))


def test_other_digits_of_the_same_offsets_are_divided_where_they_meet() -> None:
    """400 = 40 * 10 = 20 * 20: both are written in digits of 20, 2 and 10."""
    mine = plus(of_atom(Digit(ELEMENT, 1, 40)), times(Index(40), of_atom(Digit(ELEMENT, 40, 10))) or Index(0))
    other = plus(of_atom(Digit(ROW, 1, 20)), times(Index(20), of_atom(Digit(COLUMN, 1, 20))) or Index(0))
    found = correspondence_of(mine, other)
    assert found is not None and [a.size for a, _ in found.pairs] == [20, 2, 10]


def test_other_offsets_do_not_correspond() -> None:
    mine = of_atom(Digit(ELEMENT, 1, 30))
    for sizes, strides in (([4, 7], [1, 4]), ([5, 5], [1, 5]), ([5, 6], [1, 6]), ([30], [2])):
        assert correspondence_of(mine, numbering(random.Random(1), sizes, strides, [ROW, COLUMN])) is None


def test_an_offset_that_two_elements_share_is_no_number() -> None:
    twice = plus(of_atom(Digit(ROW, 1, 5)), times(Index(4), of_atom(Digit(COLUMN, 1, 6))) or Index(0))
    assert pieces_of(twice, {ROW: 5, COLUMN: 6}) is None
    assert pieces_of(of_atom(Digit(ROW, 1, 5)), {ROW: 10}) is None  # twice over
    assert pieces_of(of_atom(Digit(ROW, 4, 5)), {ROW: 30}) is None  # no digit of 30
