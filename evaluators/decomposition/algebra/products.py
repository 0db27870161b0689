"""Products of matrices of which less is wanted than they make."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import fx

from evaluators.decomposition.algebra.graph import (
    Change,
    Writer,
    argument,
    aten,
    dims_of,
    is_exact,
    is_tensor,
    name_of,
    operands_of,
    shape_of,
)

MIN_ROWS = 16  # of a product whose outputs are added up: with fewer, adding up the weights costs as much
SAVED = 0.75  # of the time, at most, has to be left by what is counted, for products to be done otherwise
MOVED = 32  # multiplications of float32 in the time that moving one takes: 33 and 1.2 of 10^12 a second on an H200

_DIAGONALS = (aten.diag.default, aten.diag_embed.default)
_SCALINGS = (aten.mul.Tensor, aten.div.Tensor)


def product_with_diagonal(node: fx.Node) -> Change | None:
    """diag(v) @ b = v[:, None] * b, and a @ diag(v) = a * v."""
    sides = operands_of(node)
    if sides is None:
        return None
    left, right = sides
    write = Writer(node)
    what = f"a product with a diagonal matrix, {shape_of(left)} by {shape_of(right)}"
    if (values := _diagonal(left)) is not None:
        return Change(write(aten.mul.Tensor, write(aten.unsqueeze.default, values, -1), right), what)
    if (values := _diagonal(right)) is not None:
        return Change(write(aten.mul.Tensor, left, write(aten.unsqueeze.default, values, -2)), what)
    return None


def _diagonal(node: fx.Node) -> fx.Node | None:
    """What stands on the diagonal of a matrix that is zero elsewhere."""
    if node.target not in _DIAGONALS or len(node.args) != 1 or node.kwargs:
        return None
    values = node.args[0]
    is_square = node.target is aten.diag_embed.default or len(shape_of(values)) == 1
    return values if is_square else None


class _Sum(NamedTuple):
    """A sum or mean over a product, with the factors that were in between."""

    left: fx.Node
    right: fx.Node  # (..., k, n), or (n, k) of a linear layer
    bias: fx.Node | None
    is_linear: bool
    scalings: tuple[fx.Node, ...]  # innermost first
    shape: tuple[int, ...]  # of the product

    @property
    def is_shared(self) -> bool:
        """Whether there is one right side for all rows."""
        return self.is_linear or len(shape_of(self.right)) == 2


def sum_of_product(node: fx.Node) -> Change | None:
    """A sum over a product's outputs is one output, of added weights; a sum over its rows is the product of one row."""
    is_sum = node.target in (aten.sum.dim_IntList, aten.sum.default)
    if not is_sum and node.target not in (aten.mean.dim, aten.mean.default):
        return None
    if node.kwargs or not is_tensor(node.args[0]) or not is_exact(node):
        return None
    its = _product_under(node.args[0])
    if its is None:
        return None
    dims, n_dims = dims_of(node), len(its.shape)
    write = Writer(node)
    is_over_outputs = n_dims - 1 in dims
    rows = [dim for dim in dims if dim != n_dims - 1]
    added = _over_outputs(write, its, rows) if is_over_outputs else _over_rows(write, its, rows)
    if added is None:
        return None
    if not is_sum:
        added = write(aten.div.Tensor, added, math.prod(its.shape[dim] for dim in dims))
    for scaling in its.scalings:
        added = write(scaling.target, added, scaling.args[1])
    if not argument(node, 2, False):
        added = write(aten.squeeze.dims, added, list(dims))
    over = "outputs" if is_over_outputs else "rows"
    return Change(added, f"a {name_of(node)} over the {over} of a product, {its.shape}")


def _product_under(node: fx.Node) -> _Sum | None:
    """The product below factors that are plain numbers; None where something else needs it, too."""
    scalings: list[fx.Node] = []
    while node.target in _SCALINGS and isinstance(argument(node, 1), int | float) and len(node.users) == 1:
        scalings.insert(0, node)
        node = node.args[0]
    if len(node.users) != 1 or node.kwargs or not is_tensor(node) or not is_exact(node):
        return None
    if node.target is aten.linear.default:
        left, right, bias = node.args[0], node.args[1], argument(node, 2)
        return _Sum(left, right, bias, True, tuple(scalings), shape_of(node))
    sides = operands_of(node)
    if sides is None:
        return None
    is_plain = len(shape_of(sides[0])) == len(shape_of(node))  # else one side is used for several of the other
    return _Sum(*sides, None, False, tuple(scalings), shape_of(node)) if is_plain else None


def _over_outputs(write: Writer, its: _Sum, rows: Sequence[int]) -> fx.Node | None:
    """(..., 1) where the product has (..., n); the other dimensions that are added up are 1, too."""
    n_rows = math.prod(its.shape[:-1]) if its.is_shared else its.shape[-2]
    if n_rows < MIN_ROWS or its.shape[-1] == 1:
        return None
    weights = write(aten.sum.dim_IntList, its.right, [0 if its.is_linear else -1])
    if len(shape_of(weights)) > 1:
        weights = write(aten.unsqueeze.default, weights, -2)
    added = write(aten.sum.dim_IntList, write(aten.mul.Tensor, its.left, weights), [-1], True)
    if its.bias is not None:
        added = write(aten.add.Tensor, added, write(aten.sum.default, its.bias))
    return write(aten.sum.dim_IntList, added, list(rows), True) if rows else added


def _over_rows(write: Writer, its: _Sum, rows: Sequence[int]) -> fx.Node | None:
    """The product of rows that were added up before."""
    n_rows = math.prod(its.shape[dim] for dim in rows)
    if n_rows == 1 or not (its.is_shared or list(rows) == [len(its.shape) - 2]) or not _is_worth_adding(its, n_rows):
        return None
    added = write(aten.sum.dim_IntList, its.left, list(rows), True)
    if not its.is_linear:
        return write(aten.matmul.default, added, its.right)
    product = write(aten.linear.default, added, its.right)
    if its.bias is None:
        return product
    return write(aten.add.Tensor, product, write(aten.mul.Tensor, its.bias, n_rows))


def _is_worth_adding(its: _Sum, n_rows: int) -> bool:
    """Whether adding up rows, which writes sums and reads them again, takes less than a product of all of them."""
    n_inner, n_columns, n_all = shape_of(its.left)[-1], its.shape[-1], math.prod(its.shape[:-1])
    n_right, n_left = (1, n_all) if its.is_shared else (math.prod(its.shape[:-2]), its.shape[-2])
    now = n_right * _cost(n_left, n_inner, n_columns) + MOVED * n_all * n_columns
    n_sums = n_left // max(1, n_rows)
    then = MOVED * (n_all * n_inner + n_right * n_sums * n_inner) + n_right * _cost(n_sums, n_inner, n_columns)
    return then < now


def _cost(n_rows: int, n_inner: int, n_columns: int) -> int:
    """Of a product, in multiplications: it takes as long as these, or as long as moving what it reads and writes."""
    n_moved = n_rows * n_inner + n_inner * n_columns + n_rows * n_columns
    return max(n_rows * n_inner * n_columns, MOVED * n_moved)


def order_of_products(node: fx.Node) -> Change | None:
    """(a @ b) @ c = a @ (b @ c), whichever takes less."""
    sides = operands_of(node)
    if sides is None or len(shape_of(node)) != 2 or not is_exact(node):
        return None
    for inner, is_left in ((sides[0], True), (sides[1], False)):
        pair = operands_of(inner)
        if pair is None or len(inner.users) != 1:
            continue
        a, b, c = (*pair, sides[1]) if is_left else (sides[0], *pair)
        (m, k), n, p = shape_of(a), shape_of(b)[1], shape_of(c)[1]
        left_first, right_first = _cost(m, k, n) + _cost(m, n, p), _cost(k, n, p) + _cost(m, k, p)
        now, then = (left_first, right_first) if is_left else (right_first, left_first)
        if then >= SAVED * now:
            continue
        write = Writer(node)
        ordered = (a, write(aten.mm.default, b, c)) if is_left else (write(aten.mm.default, a, b), c)
        what = f"a chain of products in an order that takes more: {m} by {k} by {n} by {p}"
        return Change(write(aten.mm.default, *ordered), what)
    return None
