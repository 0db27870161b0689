"""What the integers of a kernel are made of: sums of digits of the variables that number its elements.

A variable counts from 0 in steps of one, as `tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)` does over a grid, and
`r0_offset + tl.arange(0, R0_BLOCK)` over a loop. A digit is `(variable // divisor) % size`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Lanes(NamedTuple):
    """`tl.arange(0, extent)` along one axis of a tile of `rank` dimensions."""

    extent: int
    axis: int
    rank: int


class Programs(NamedTuple):
    """`tl.program_id(axis)`"""

    axis: int


class Counter(NamedTuple):
    """The target of the loop with this number among the loops of a kernel."""

    loop: int
    start: int
    stop: int
    step: int

    @property
    def n_iterations(self) -> int:
        return max(0, -((self.start - self.stop) // self.step))


class Variable(NamedTuple):
    """Programs or iterations, each with so many lanes. Without an origin the lanes alone, without lanes the origin."""

    origin: Programs | Counter | None
    lanes: Lanes | None

    @property
    def block(self) -> int:
        return self.lanes.extent if self.lanes is not None else 1

    def n_values(self, grid: tuple[int, ...]) -> int:
        """How many values it takes in a launch with this grid, those that a mask drops included."""
        if isinstance(self.origin, Programs):
            return self.block * (grid[self.origin.axis] if self.origin.axis < len(grid) else 1)
        return self.block * (self.origin.n_iterations if self.origin is not None else 1)


class Digit(NamedTuple):
    """`(variable // divisor) % size`; without a size `variable // divisor`."""

    variable: Variable
    divisor: int = 1
    size: int | None = None


Atom = Lanes | Programs | Counter | Digit


class Index(NamedTuple):
    """A constant and multiples of atoms; `is_wide` where it was cast to 64 bits."""

    constant: int
    terms: frozenset[tuple[Atom, int]] = frozenset()
    is_wide: bool = False

    @property
    def number(self) -> int | None:
        """The value, where it is the same everywhere."""
        return None if self.terms else self.constant


class Bounds(NamedTuple):
    """A mask: each of these variables is below its bound."""

    below: frozenset[tuple[Variable, int]] = frozenset()


class Pointer(NamedTuple):
    """The pointer that a parameter holds, moved by a number of elements."""

    parameter: str
    offset: Index


Value = Index | Bounds | Pointer


def of_atom(atom: Atom) -> Index:
    return Index(0, frozenset({(atom, 1)}))


def plus(left: Index, right: Index, sign: int = 1) -> Index:
    """Their sum or difference. Programs or iterations with lanes as large as their step become one variable."""
    terms = dict(left.terms)
    for atom, factor in right.terms:
        terms[atom] = terms.get(atom, 0) + sign * factor
    constant = left.constant + sign * right.constant
    return _index(constant, terms, left.is_wide or right.is_wide)


def times(left: Index, right: Index) -> Index | None:
    """Their product where one of them is a number."""
    number, other = (left.number, right) if left.number is not None else (right.number, left)
    if number is None:
        return None
    terms = {atom: number * factor for atom, factor in other.terms}
    return _index(number * other.constant, terms, left.is_wide or right.is_wide)


def divided(index: Index, divisor: int) -> Index | None:
    """`index // divisor` of a number or of one digit."""
    if index.number is not None and index.constant >= 0:
        return index._replace(constant=index.constant // divisor)
    digit = one_digit(index)
    if digit is None:
        return None
    if digit.size is not None and digit.size <= divisor:
        return Index(0, is_wide=index.is_wide)
    if digit.size is not None and digit.size % divisor:
        return None
    size = None if digit.size is None else digit.size // divisor
    return of_atom(Digit(digit.variable, digit.divisor * divisor, size))._replace(is_wide=index.is_wide)


def remainder(index: Index, divisor: int) -> Index | None:
    """`index % divisor` of a number or of one digit."""
    if index.number is not None and index.constant >= 0:
        return index._replace(constant=index.constant % divisor)
    digit = one_digit(index)
    if digit is None or (digit.size is not None and digit.size > divisor and digit.size % divisor):
        return None
    size = divisor if digit.size is None else min(digit.size, divisor)
    return of_atom(Digit(digit.variable, digit.divisor, size))._replace(is_wide=index.is_wide)


def one_digit(index: Index) -> Digit | None:
    """The digit that an index is, or None where it is a sum or a multiple."""
    found = digits_of(index)
    if index.constant or found is None or list(found.values()) != [1]:
        return None
    return next(iter(found))


def digits_of(index: Index) -> dict[Digit, int] | None:
    """The digits of an index with their factors; None where a loop leaves out numbers."""
    found: dict[Digit, int] = {}
    for atom, factor in index.terms:
        if isinstance(atom, Counter) and (atom.start, atom.step) != (0, 1):
            return None
        digit = atom if isinstance(atom, Digit) else Digit(_alone(atom))
        found[digit] = found.get(digit, 0) + factor
    return found


def expanded(value: Value, axis: int, rank: int) -> Value | None:
    """A row as one axis of a tile: `x[:, None]` has axis 0 of rank 2. None where it is more than a row."""
    if isinstance(value, Pointer):
        return None
    if isinstance(value, Bounds):
        below = [(_with_axis(variable, axis, rank), bound) for variable, bound in value.below]
        return None if any(v is None for v, _ in below) else Bounds(frozenset((v, b) for v, b in below if v))
    terms: dict[Atom, int] = {}
    for atom, factor in value.terms:
        moved = _atom_with_axis(atom, axis, rank)
        if moved is None:
            return None
        terms[moved] = factor
    return Index(value.constant, frozenset(terms.items()), value.is_wide)


def _atom_with_axis(atom: Atom, axis: int, rank: int) -> Atom | None:
    if isinstance(atom, Lanes):
        return Lanes(atom.extent, axis, rank) if atom.rank == 1 else None
    if isinstance(atom, Digit):
        variable = _with_axis(atom.variable, axis, rank)
        return None if variable is None else atom._replace(variable=variable)
    return atom


def _with_axis(variable: Variable, axis: int, rank: int) -> Variable | None:
    if variable.lanes is None:
        return variable
    lanes = Lanes(variable.lanes.extent, axis, rank)
    return variable._replace(lanes=lanes) if variable.lanes.rank == 1 else None


def _alone(atom: Lanes | Programs | Counter) -> Variable:
    return Variable(None, atom) if isinstance(atom, Lanes) else Variable(atom, None)


def _index(constant: int, terms: Mapping[Atom, int], is_wide: bool) -> Index:
    kept = frozenset((atom, factor) for atom, factor in terms.items() if factor)
    variable = _joined(kept) if constant == 0 else None
    return of_atom(Digit(variable))._replace(is_wide=is_wide) if variable else Index(constant, kept, is_wide)


def _joined(terms: frozenset[tuple[Atom, int]]) -> Variable | None:
    """`origin * extent + lanes` of programs, or `offset + lanes` of a loop whose step is the extent."""
    lanes = [atom for atom, factor in terms if isinstance(atom, Lanes) and factor == 1]
    origins = [(atom, factor) for atom, factor in terms if isinstance(atom, Programs | Counter)]
    if len(terms) != 2 or len(lanes) != 1 or len(origins) != 1:
        return None
    origin, factor = origins[0]
    if isinstance(origin, Programs):
        return Variable(origin, lanes[0]) if factor == lanes[0].extent else None
    is_even = origin.start == 0 and origin.step == lanes[0].extent and factor == 1
    return Variable(origin, lanes[0]) if is_even else None
