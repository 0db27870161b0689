"""Loads of two-dimensional tiles whose place can be told: base + rows[:, None] * stride + columns[None, :], masked by
the extents of a matrix, with pointers that a loop may move along one side."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import libcst as cst

from islands.operators.structural.analysis import Program, Scope, argument, integer
from islands.operators.structural.kernels import Loop, loops_of
from islands.operators.structural.names import Binding, bindings
from islands.operators.structural.row_loops import is_parameter, nearest
from islands.operators.structural.shapes import is_scalar, tile_names

_MAX_DEPTH = 12
_WRAPPERS = ("max_contiguous", "multiple_of")
_ZEROS = ("0", "0.0", "0.")


class Side(NamedTuple):
    """One side of a tile: `extent` lanes from the sum of `offsets` on, `stride` elements apart, in a matrix that is
    `bound` long there (empty: not known yet)."""

    extent: str
    offsets: tuple[str, ...]
    stride: str  # "1", or the name of a parameter
    bound: str

    @property
    def place(self) -> list[str]:
        return sorted(o.replace(" ", "") for o in self.offsets)


class TileLoad(NamedTuple):
    """A load of a tile; `sides` in the order of the tile's axes."""

    call: cst.Call
    base: str
    sides: tuple[Side, Side]


class _Index(NamedTuple):
    """`offsets + tl.arange(0, extent)` along one axis of a tile."""

    axis: int
    extent: str
    offsets: tuple[str, ...]
    bound: str  # where it wraps around


def tile_loads(program: Program, kernel: Scope) -> list[TileLoad]:
    """The loads of a kernel that are understood, in order of the text."""

    def compute() -> list[TileLoad]:
        reader = _Reader(program, kernel)
        found = [reader.load(call) for call in program.device_calls(kernel, "load")]
        return [load for load in found if load is not None]

    return program.derived(("tile loads", id(kernel)), compute)


class _Reader:
    def __init__(self, program: Program, kernel: Scope) -> None:
        self.program = program
        self.kernel = kernel
        self.tiles = tile_names(program, kernel)
        self.followed: set[str] = set()  # names that the latest load was understood by

    def load(self, call: cst.Call) -> TileLoad | None:
        self.followed = set()
        pointer, mask, other = (argument(call, i, name) for i, name in enumerate(("pointer", "mask", "other")))
        if pointer is None or (other is not None and self.program.text(other) not in _ZEROS):
            return None
        found = self._address(pointer)
        moved = None if found is None else self._moved(call, pointer, found[1])
        conditions = [] if mask is None else self._conditions(mask)
        own = {pointer.value} if isinstance(pointer, cst.Name) else set()
        if found is None or moved is None or conditions is None or self._rebound_in_loop(call, self.followed - own):
            return None
        bounded = _bounded(moved, conditions)
        return None if bounded is None else TileLoad(call, found[0], bounded)

    # the address -----------------------------------------------------------------------------------------------------

    def _address(self, pointer: cst.BaseExpression) -> tuple[str, tuple[Side, Side]] | None:
        """The base of an address and its two sides."""
        base, *terms = self._terms(pointer, 0)
        if not is_parameter(self.program, self.kernel, base, constexpr=False) or len(terms) < 2:
            return None
        scalars = [self.program.text(t) for t in terms if is_scalar(self.program, t, self.tiles)]
        sides = [self._side(term) for term in terms if not is_scalar(self.program, term, self.tiles)]
        by_axis = {side[0]: _shifted(side[1], scalars) for side in sides if side is not None}
        if None in sides or len(sides) != 2 or set(by_axis) != {0, 1}:
            return None
        if scalars and sum(side.stride == "1" for side in by_axis.values()) != 1:
            return None
        return self.program.text(base), (by_axis[0], by_axis[1])

    def _terms(self, node: cst.BaseExpression, depth: int) -> list[cst.BaseExpression]:
        """The summands of an expression, followed through names of tiles."""
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add) and depth < _MAX_DEPTH:
            return [*self._terms(node.left, depth + 1), *self._terms(node.right, depth + 1)]
        value = self._value(node) if depth < _MAX_DEPTH else None
        if isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Add):
            return self._terms(value, depth + 1)
        return [node]

    def _value(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """What a name of a tile stands for where it is read."""
        if not isinstance(node, cst.Name) or node.value not in self.tiles:
            return None
        self.followed.add(node.value)
        binding = nearest(self.program, self.kernel, node.value, self.program.span(node).start)
        return None if binding is None else binding.value

    def _side(self, term: cst.BaseExpression) -> tuple[int, Side] | None:
        """`rows[:, None] * stride`, in either order, or without a stride."""
        value = self._value(term)
        if value is not None:
            return self._side(value)
        if isinstance(term, cst.BinaryOperation) and isinstance(term.operator, cst.Multiply):
            for expanded, stride in ((term.left, term.right), (term.right, term.left)):
                index = self._index(expanded)
                if index is not None and is_parameter(self.program, self.kernel, stride):
                    return index.axis, Side(index.extent, index.offsets, self.program.text(stride), index.bound)
            return None
        index = self._index(term)
        return None if index is None else (index.axis, Side(index.extent, index.offsets, "1", index.bound))

    def _index(self, node: cst.BaseExpression) -> _Index | None:
        """`x[:, None]` or `x[None, :]` of a row of consecutive numbers, or a name of it."""
        value = self._value(node)
        if value is not None:
            return self._index(value)
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add):
            return self._shifted_index(node)
        axis = _axis_of(node) if isinstance(node, cst.Subscript) else None
        if axis is None or not isinstance(node, cst.Subscript):
            return None
        row = self._row(node.value, 0)
        return None if row is None else row._replace(axis=axis)

    def _shifted_index(self, node: cst.BaseExpression) -> _Index | None:
        """`scalar + x[:, None]`."""
        terms = self._terms(node, 0)
        scalars = [self.program.text(t) for t in terms if is_scalar(self.program, t, self.tiles)]
        if len(terms) != len(scalars) + 1:
            return None
        index = self._index(next(t for t in terms if not is_scalar(self.program, t, self.tiles)))
        return None if index is None else index._replace(offsets=(*scalars, *index.offsets))

    def _row(self, node: cst.BaseExpression, depth: int) -> _Index | None:
        """Scalars and one `tl.arange(0, extent)`, perhaps wrapped around by `% bound`."""
        inner = self._value(node) if depth < _MAX_DEPTH else None
        if inner is not None:
            return self._row(inner, depth + 1)
        if isinstance(node, cst.Call) and self.program.device_call(node) in _WRAPPERS and node.args:
            return self._row(node.args[0].value, depth + 1)
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Modulo):
            row = self._row(node.left, depth + 1)
            is_bound = row is not None and is_parameter(self.program, self.kernel, node.right)
            return row._replace(bound=self.program.text(node.right)) if row is not None and is_bound else None
        offsets: list[str] = []
        extents: list[str] = []
        for term in self._terms(node, depth):
            value = self._value(term) if depth < _MAX_DEPTH else None
            inside = self._row(value, depth + 1) if value is not None else None
            if inside is not None and not inside.bound:
                extents.append(inside.extent)
                offsets += inside.offsets
            elif isinstance(term, cst.Call) and self.program.device_call(term) == "arange" and len(term.args) == 2:
                is_plain = integer(term.args[0].value) == 0
                extents.append(self.program.text(term.args[1].value) if is_plain else "")
            elif is_scalar(self.program, term, self.tiles):
                offsets.append(self.program.text(term))
            else:
                return None
        known = len(extents) == 1 and (extents[0].isdigit() or self._is_constant(extents[0]))
        return _Index(0, extents[0], tuple(offsets), "") if known else None

    def _is_constant(self, name: str) -> bool:
        parameter = self.kernel.parameter(name)
        return parameter is not None and parameter.is_constexpr

    # pointers that move ----------------------------------------------------------------------------------------------

    def _moved(self, call: cst.Call, pointer: cst.BaseExpression, sides: tuple[Side, Side]) -> tuple[Side, Side] | None:
        """The sides with how far a loop around the load has moved the pointer; None where that cannot be told."""
        if not isinstance(pointer, cst.Name):
            return sides
        moves = self._rebound_in_loop(call, {pointer.value})
        if not moves:
            return sides
        loop = next((x for x in loops_of(self.program, self.kernel) if x.node in self.program.ancestors(call)), None)
        statement = moves[0].statement
        after = self.program.span(statement).start > self.program.span(call).start
        is_sum = isinstance(statement, cst.AugAssign) and isinstance(statement.operator, cst.AddAssign)
        if len(moves) > 1 or loop is None or not after or not is_sum or not isinstance(statement, cst.AugAssign):
            return None
        is_direct = self.program.parents[self.program.parents[statement]] is loop.node.body
        return self._along(loop, statement.value, sides) if is_direct else None

    def _rebound_in_loop(self, call: cst.Call, names: Iterable[str]) -> list[Binding]:
        """The bindings, inside the loops around a load, of names whose other bindings stand before these loops."""
        around = [loop for loop in loops_of(self.program, self.kernel) if loop.node in self.program.ancestors(call)]
        found: list[Binding] = []
        for name in sorted(names):
            group = bindings(self.program, self.kernel).get(name, [])
            inside = [b for b in group if any(x.node in self.program.ancestors(b.statement) for x in around)]
            found += inside if len(inside) < len(group) else []
        return found

    def _along(self, loop: Loop, step: cst.BaseExpression, sides: tuple[Side, Side]) -> tuple[Side, Side] | None:
        if loop.start is not None and integer(loop.start) != 0:
            return None
        parts = [step.left, step.right] if isinstance(step, cst.BinaryOperation) else [step]
        texts = sorted(self.program.text(p) for p in parts)
        by_step = loop.step is not None and integer(loop.step) != 1
        for i, side in enumerate(sides):
            wanted = [[side.extent]] if side.stride == "1" else []
            wanted.append(sorted([side.extent, side.stride]))
            if texts not in wanted or (by_step and self.program.text(loop.step or loop.stop) != side.extent):
                continue
            offset = loop.target if by_step else f"{loop.target} * {side.extent}"
            moved = side._replace(offsets=(*side.offsets, offset))
            return (moved, sides[1]) if i == 0 else (sides[0], moved)
        return None

    # the mask --------------------------------------------------------------------------------------------------------

    def _conditions(self, node: cst.BaseExpression) -> list[tuple[_Index, str]] | None:
        """The comparisons of a mask, each the index of one axis and the bound that it stays below; None where one of
        them is something else."""
        value = self._value(node)
        if value is not None:
            return self._conditions(value)
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.BitAnd):
            left, right = self._conditions(node.left), self._conditions(node.right)
            return None if left is None or right is None else left + right
        if isinstance(node, cst.Subscript):
            inner = self._comparison(node.value, _axis_of(node))
        else:
            inner = self._comparison(node, None)
        return None if inner is None else [inner]

    def _comparison(self, node: cst.BaseExpression, axis: int | None) -> tuple[_Index, str] | None:
        """`index < bound` or `index < bound - offset`; the index says its axis unless that is known."""
        value = self._value(node)
        if value is not None:
            return self._comparison(value, axis)
        if not isinstance(node, cst.Comparison) or len(node.comparisons) != 1:
            return None
        target = node.comparisons[0]
        bound, less = _difference(self.program, target.comparator)
        index = self._index(node.left) if axis is None else self._row(node.left, 0)
        is_below = isinstance(target.operator, cst.LessThan) and is_parameter(self.program, self.kernel, bound)
        if index is None or not is_below:
            return None
        at = index.axis if axis is None else axis
        return index._replace(axis=at, offsets=(*index.offsets, *less)), self.program.text(bound)


def _shifted(side: Side, scalars: list[str]) -> Side:
    """A side along contiguous elements takes what is added to the address as a whole; its mask has to agree."""
    return side._replace(offsets=(*scalars, *side.offsets)) if side.stride == "1" else side


def _bounded(sides: tuple[Side, Side], conditions: list[tuple[_Index, str]]) -> tuple[Side, Side] | None:
    """The sides with their bounds, where the mask is made of just these."""
    known = list(sides)
    for index, bound in conditions:
        side = known[index.axis]
        same = sorted(o.replace(" ", "") for o in index.offsets) == side.place and index.extent == side.extent
        if not same or side.bound not in ("", bound):
            return None
        known[index.axis] = side._replace(bound=bound)
    # a side that is one tile long needs no bound
    known = [s._replace(bound=s.extent) if not s.bound and not s.offsets else s for s in known]
    return (known[0], known[1]) if all(s.bound for s in known) else None


def _axis_of(node: cst.Subscript) -> int | None:
    """0 for `x[:, None]`, 1 for `x[None, :]`."""
    kinds = [isinstance(element.slice, cst.Slice) for element in node.slice]
    return kinds.index(True) if len(kinds) == 2 and sum(kinds) == 1 else None


def _difference(program: Program, node: cst.BaseExpression) -> tuple[cst.BaseExpression, tuple[str, ...]]:
    """`bound - offset` as the bound and its offset; anything else without an offset."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Subtract):
        return node.left, (program.text(node.right),)
    return node, ()
