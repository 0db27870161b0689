"""Products whose zeros are known: of triangular matrices, or such that only a triangle of them counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import fx

from evaluators.decomposition.algebra.graph import Change, Writer, aten, operands_of, shape_of

MIN_SIDE = 1024  # of a triangular product
N_BLOCKS = (8, 4, 2)  # of rows that a triangular product may be cut into
SAVED = 0.75  # of the time, at most, has to be left by what is counted
TILE = 128 * 128  # elements of a product that one multiprocessor makes at a time
N_TILES = 132  # at a time, on an H200: what does not fill them takes as long as if it did

_TRIANGLES = {aten.tril.default: "lower", aten.triu.default: "upper"}


def triangular_product(node: fx.Node) -> Change | None:
    """A product of which only a triangle counts, or with triangular matrices, by blocks of rows without the zeros."""
    triangle = _TRIANGLES.get(node.target, "") if len(node.args) == 1 else ""
    product: Any = node.args[0] if triangle else node
    sides = operands_of(product)
    if sides is None or len(shape_of(product)) != 2 or (triangle and len(product.users) != 1):
        return None
    of_left, of_right = (_TRIANGLES.get(side.target, "") if len(side.args) == 1 else "" for side in sides)
    (n_rows, n_inner), n_columns = shape_of(sides[0]), shape_of(sides[1])[1]
    kind = triangle or of_left
    is_masked = bool(triangle) or of_left == of_right
    cuts = _Cuts(kind, cuts_inner=of_left == kind, cuts_columns=is_masked)
    if not kind or min(n_rows, n_inner, n_columns) < MIN_SIDE:
        return None
    ways = [[cuts.of(*rows, n_inner, n_columns) for rows in _stretches(n_rows, n)] for n in N_BLOCKS]
    blocks = min(ways, key=_time)
    if _time(blocks) > SAVED * _time([_Block((0, n_rows), (0, n_inner), (0, n_columns))]):
        return None
    left = sum(math.prod(block.sizes) for block in blocks) / (n_rows * n_inner * n_columns)
    write = Writer(node)
    pieces = [_block(write, block, *sides, n_columns) for block in blocks]
    whole = write(aten.cat.default, pieces)
    what = f"{1 - left:.0%} of the multiplications of a triangular product, {shape_of(product)}"
    return Change(write(node.target, whole) if triangle else whole, what)


class _Block(NamedTuple):
    """Rows of a product, and which part of the inner dimension and of the columns is not zero there."""

    rows: tuple[int, int]
    inner: tuple[int, int]
    columns: tuple[int, int]

    @property
    def sizes(self) -> tuple[int, int, int]:
        rows, inner, columns = (stop - start for start, stop in self)
        return rows, inner, columns


def _time(blocks: Sequence[_Block]) -> int:
    """Of one product after the other, in steps along the inner dimension: all tiles that fit on a GPU take one at a
    time."""
    return sum(
        math.ceil(rows * columns / (TILE * N_TILES)) * inner
        for rows, inner, columns in (block.sizes for block in blocks)
    )


class _Cuts(NamedTuple):
    """What is zero beside the diagonal."""

    kind: str  # "lower" or "upper": the triangle that is not
    cuts_inner: bool
    cuts_columns: bool

    def of(self, start: int, stop: int, n_inner: int, n_columns: int) -> _Block:
        return _Block(
            (start, stop),
            self._span(start, stop, n_inner) if self.cuts_inner else (0, n_inner),
            self._span(start, stop, n_columns) if self.cuts_columns else (0, n_columns),
        )

    def _span(self, start: int, stop: int, size: int) -> tuple[int, int]:
        return (0, min(stop, size)) if self.kind == "lower" else (min(start, size), size)


def _stretches(size: int, n: int) -> list[tuple[int, int]]:
    step = -(-size // n)
    return [(start, min(start + step, size)) for start in range(0, size, step)]


def _block(write: Writer, block: _Block, left: fx.Node, right: fx.Node, n_columns: int) -> fx.Node:
    """All columns of the block's rows."""
    rows = write(aten.slice.Tensor, write(aten.slice.Tensor, left, 0, *block.rows), 1, *block.inner)
    columns = write(aten.slice.Tensor, write(aten.slice.Tensor, right, 0, *block.inner), 1, *block.columns)
    product = write(aten.mm.default, rows, columns)
    before, after = block.columns[0], n_columns - block.columns[1]
    return write(aten.constant_pad_nd.default, product, [before, after]) if before or after else product
