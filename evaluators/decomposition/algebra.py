"""Needless work that a module asks for, left out before it is compiled: no search over kernels can see it.

Every rule is an identity over real numbers. It is applied to the graph of ATen operations that `torch.export` makes of
the module, where it saves work whatever the values are; how much is lost by rounding, the judge's gates say as of any
other program. Values that are not finite may come out otherwise: zero times infinity is not computed any more.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx, nn
from torch.fx.node import map_arg

MOST_CHANGES = 32
MIN_ROWS = 16  # of a product whose outputs are added up: with fewer, adding up the weights costs as much
MIN_SIDE = 1024  # of a triangular product
N_BLOCKS = (8, 4, 2)  # of rows that a triangular product may be cut into
SAVED = 0.75  # of the time, at most, has to be left by what is counted, for products to be done otherwise
MOVED = 32  # multiplications of float32 in the time that moving one takes: 33 and 1.2 of 10^12 a second on an H200
TILE = 128 * 128  # elements of a product that one multiprocessor makes at a time
N_TILES = 132  # at a time, on an H200: what does not fill them takes as long as if it did

aten = torch.ops.aten
_PRODUCTS = (aten.matmul.default, aten.mm.default)
_DIAGONALS = (aten.diag.default, aten.diag_embed.default)
_OVER_ONE = (aten.sum.dim_IntList, aten.mean.dim, aten.amax.default, aten.amin.default, aten.logsumexp.default)
_SCALINGS = (aten.mul.Tensor, aten.div.Tensor)
_TRIANGLES = {aten.tril.default: "lower", aten.triu.default: "upper"}

Rule = Callable[[fx.Node], "_Change | None"]


class Simplified(NamedTuple):
    """A module that answers the same from the same weights with less work, and what was left out."""

    model: nn.Module
    left_out: tuple[str, ...]


class _Change(NamedTuple):
    """What stands for a node now."""

    node: fx.Node
    what: str


def simplified(model: nn.Module, inputs: Sequence[Any]) -> Simplified | None:
    """The module without its needless work; None where none is seen, or the module cannot be exported.

    Args:
        inputs: of its forward; only their shapes and dtypes matter.
    """
    try:
        module = _exported(model, inputs)
    except Exception:  # torch.export refuses in many ways what it cannot trace; then nothing is known of the module
        return None
    left_out = tuple(_applied(module.graph))
    if not left_out:
        return None
    module.graph.lint()
    module.recompile()
    return Simplified(module, left_out)


def _exported(model: nn.Module, inputs: Sequence[Any]) -> fx.GraphModule:
    with torch.no_grad():
        program = torch.export.export(model, tuple(inputs), strict=False)
    asks_guards = "check_guards" in inspect.signature(program.module).parameters
    module: fx.GraphModule = program.module(check_guards=False) if asks_guards else program.module()
    return module


def _applied(graph: fx.Graph) -> Iterator[str]:
    """Applies one rule after the other until none fits; says what each did."""
    for _ in range(MOST_CHANGES):
        change = next((found for node in graph.nodes if (found := _change_of(node))), None)
        if change is None:
            return
        yield change.what
        graph.eliminate_dead_code()


def _change_of(node: fx.Node) -> _Change | None:
    if node.op != "call_function" or not node.users:
        return None
    for rule in RULES:
        last = node.prev  # that is not written by the rule
        change = rule(node)
        if change is None:
            continue
        if _is_alike(change.node, node) and _is_undisturbed(node, last):
            node.replace_all_uses_with(_laid_out(change.node, node))
            return change
        node.graph.eliminate_dead_code()  # of what the rule wrote, which would count as another reader
    return None


def _is_alike(new: fx.Node, old: fx.Node) -> bool:
    return _shape(new) == _shape(old) and new.meta["val"].dtype == old.meta["val"].dtype


def _laid_out(new: fx.Node, old: fx.Node) -> fx.Node:
    """In memory as before, where later views count on it."""
    if new.meta["val"].is_contiguous() or not old.meta["val"].is_contiguous():
        return new
    return _Writer(old)(aten.contiguous.default, new)


def _is_undisturbed(node: fx.Node, last: fx.Node) -> bool:
    """Whether nothing is changed in place between what a rule looked through and the node: what is written for it reads
    later than was read before.

    Args:
        last: after it stands what the rule wrote, up to the node.
    """
    read: set[fx.Node] = set()
    before = node.prev
    while before is not last:
        read.update(before.all_input_nodes)
        before = before.prev
    passed = _above(node, read)
    while passed:
        if _changes_memory(before):
            return False
        passed.discard(before)
        before = before.prev
    return True


def _above(node: fx.Node, ends: set[fx.Node]) -> set[fx.Node]:
    """What a node is made from, up to where it ends."""
    above: set[fx.Node] = set()
    waiting = [node]
    while waiting:
        found = set(waiting.pop().all_input_nodes) - ends - above
        above |= found
        waiting += found
    return above


def _changes_memory(node: fx.Node) -> bool:
    """Whether it may write to what it is given. What operators with graphs of their own do is not looked at."""
    if isinstance(node.target, torch._ops.OpOverload):
        return bool(node.target._schema.is_mutable)
    return isinstance(node.target, torch._ops.HigherOrderOperator)


# ---------------------------------------------------------------------------------------------------------- the graph


class _Writer:
    """Writes nodes before another one, each with the value that the graph keeps for its shape."""

    def __init__(self, before: fx.Node) -> None:
        self._before = before

    def __call__(self, target: Any, *arguments: Any) -> fx.Node:
        with self._before.graph.inserting_before(self._before):
            node = self._before.graph.call_function(target, arguments)
        node.meta["val"] = target(*map_arg(arguments, lambda given: given.meta["val"]))
        return node


def _shape(node: Any) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, fx.Node) and isinstance(value.meta.get("val"), torch.Tensor)


def _is_exact(node: fx.Node) -> bool:
    """Whether intermediate results have the precision of sums: in half precision each rounding would count."""
    return node.meta["val"].dtype in (torch.float32, torch.float64)


def _argument(node: fx.Node, index: int, default: Any = None) -> Any:
    return node.args[index] if len(node.args) > index else default


def _dims(node: fx.Node) -> tuple[int, ...]:
    """The dimensions that a reduction goes over, from 0; all of them where it names none. A scalar has none."""
    n_dims = len(_shape(node.args[0]))
    named = _argument(node, 1)
    named = [named] if isinstance(named, int) else named
    return tuple(sorted(dim % n_dims for dim in named)) if named and n_dims else tuple(range(n_dims))


def _operands(node: Any) -> tuple[fx.Node, fx.Node] | None:
    """The two sides of a product of matrices, stacks of them included."""
    if not isinstance(node, fx.Node) or node.target not in _PRODUCTS or node.kwargs:
        return None
    left, right = node.args
    if not (_is_tensor(left) and _is_tensor(right)) or min(len(_shape(left)), len(_shape(right))) < 2:
        return None
    return left, right


# ---------------------------------------------------------------------------------------------------------- the rules


def product_with_diagonal(node: fx.Node) -> _Change | None:
    """diag(v) @ b = v[:, None] * b, and a @ diag(v) = a * v."""
    sides = _operands(node)
    if sides is None:
        return None
    left, right = sides
    write = _Writer(node)
    what = f"a product with a diagonal matrix, {_shape(left)} by {_shape(right)}"
    if (values := _diagonal(left)) is not None:
        return _Change(write(aten.mul.Tensor, write(aten.unsqueeze.default, values, -1), right), what)
    if (values := _diagonal(right)) is not None:
        return _Change(write(aten.mul.Tensor, left, write(aten.unsqueeze.default, values, -2)), what)
    return None


def _diagonal(node: fx.Node) -> fx.Node | None:
    """What stands on the diagonal of a matrix that is zero elsewhere."""
    if node.target not in _DIAGONALS or len(node.args) != 1 or node.kwargs:
        return None
    values = node.args[0]
    is_square = node.target is aten.diag_embed.default or len(_shape(values)) == 1
    return values if is_square else None


def reduction_over_one(node: fx.Node) -> _Change | None:
    """Sums, means, extrema and log-sum-exps over dimensions of one element."""
    if node.target not in _OVER_ONE or node.kwargs or not _is_tensor(node.args[0]) or not _argument(node, 1):
        return None
    given: Any = node.args[0]
    dims = _dims(node)
    if any(_shape(given)[dim] != 1 for dim in dims) or given.meta["val"].dtype != node.meta["val"].dtype:
        return None
    if given.meta["val"].is_complex() and node.target is aten.logsumexp.default:  # the logarithm has one branch of many
        return None
    stays = _copied(_Writer(node), given, () if _argument(node, 2, False) else dims)
    return _Change(stays, f"{_name(node)} over one element, of {_shape(given)}")


def extremum_over_one(node: fx.Node) -> _Change | None:
    """The values of `max` and `min` along a dimension of one element."""
    if node.target is not operator.getitem or node.args[1] != 0:
        return None
    its: Any = node.args[0]
    if its.target not in (aten.max.dim, aten.min.dim):
        return None
    given, dims = its.args[0], _dims(its)
    if any(_shape(given)[dim] != 1 for dim in dims):
        return None
    stays = _copied(_Writer(node), given, () if _argument(its, 2, False) else dims)
    return _Change(stays, f"{_name(its)} over one element, of {_shape(given)}")


def _copied(write: _Writer, given: fx.Node, dims: Sequence[int]) -> fx.Node:
    """A tensor without dimensions of one element, in memory of its own: whoever changes one of the two in place, or
    gets both as answers, must not find them tied. A compiler writes the copy only where it is needed."""
    return write(aten.clone.default, write(aten.squeeze.dims, given, list(dims)) if dims else given)


def _name(node: fx.Node) -> str:
    return str(node.target).split(".")[1]


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
        return self.is_linear or len(_shape(self.right)) == 2


def sum_of_product(node: fx.Node) -> _Change | None:
    """A sum over a product's outputs is one output, of added weights; a sum over its rows is the product of one row."""
    is_sum = node.target in (aten.sum.dim_IntList, aten.sum.default)
    if not is_sum and node.target not in (aten.mean.dim, aten.mean.default):
        return None
    if node.kwargs or not _is_tensor(node.args[0]) or not _is_exact(node):
        return None
    its = _product_under(node.args[0])
    if its is None:
        return None
    dims, n_dims = _dims(node), len(its.shape)
    write = _Writer(node)
    is_over_outputs = n_dims - 1 in dims
    rows = [dim for dim in dims if dim != n_dims - 1]
    added = _over_outputs(write, its, rows) if is_over_outputs else _over_rows(write, its, rows)
    if added is None:
        return None
    if not is_sum:
        added = write(aten.div.Tensor, added, math.prod(its.shape[dim] for dim in dims))
    for scaling in its.scalings:
        added = write(scaling.target, added, scaling.args[1])
    if not _argument(node, 2, False):
        added = write(aten.squeeze.dims, added, list(dims))
    over = "outputs" if is_over_outputs else "rows"
    return _Change(added, f"a {_name(node)} over the {over} of a product, {its.shape}")


def _product_under(node: fx.Node) -> _Sum | None:
    """The product below factors that are plain numbers; None where something else needs it, too."""
    scalings: list[fx.Node] = []
    while node.target in _SCALINGS and isinstance(_argument(node, 1), int | float) and len(node.users) == 1:
        scalings.insert(0, node)
        node = node.args[0]
    if len(node.users) != 1 or node.kwargs or not _is_tensor(node) or not _is_exact(node):
        return None
    if node.target is aten.linear.default:
        left, right, bias = node.args[0], node.args[1], _argument(node, 2)
        return _Sum(left, right, bias, True, tuple(scalings), _shape(node))
    sides = _operands(node)
    if sides is None:
        return None
    is_plain = len(_shape(sides[0])) == len(_shape(node))  # else one side is used for several of the other
    return _Sum(*sides, None, False, tuple(scalings), _shape(node)) if is_plain else None


def _over_outputs(write: _Writer, its: _Sum, rows: Sequence[int]) -> fx.Node | None:
    """(..., 1) where the product has (..., n); the other dimensions that are added up are 1, too."""
    n_rows = math.prod(its.shape[:-1]) if its.is_shared else its.shape[-2]
    if n_rows < MIN_ROWS or its.shape[-1] == 1:
        return None
    weights = write(aten.sum.dim_IntList, its.right, [0 if its.is_linear else -1])
    if len(_shape(weights)) > 1:
        weights = write(aten.unsqueeze.default, weights, -2)
    added = write(aten.sum.dim_IntList, write(aten.mul.Tensor, its.left, weights), [-1], True)
    if its.bias is not None:
        added = write(aten.add.Tensor, added, write(aten.sum.default, its.bias))
    return write(aten.sum.dim_IntList, added, list(rows), True) if rows else added


def _over_rows(write: _Writer, its: _Sum, rows: Sequence[int]) -> fx.Node | None:
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
    n_inner, n_columns, n_all = _shape(its.left)[-1], its.shape[-1], math.prod(its.shape[:-1])
    n_right, n_left = (1, n_all) if its.is_shared else (math.prod(its.shape[:-2]), its.shape[-2])
    now = n_right * _cost(n_left, n_inner, n_columns) + MOVED * n_all * n_columns
    n_sums = n_left // max(1, n_rows)
    then = MOVED * (n_all * n_inner + n_right * n_sums * n_inner) + n_right * _cost(n_sums, n_inner, n_columns)
    return then < now


def _cost(n_rows: int, n_inner: int, n_columns: int) -> int:
    """Of a product, in multiplications: it takes as long as these, or as long as moving what it reads and writes."""
    n_moved = n_rows * n_inner + n_inner * n_columns + n_rows * n_columns
    return max(n_rows * n_inner * n_columns, MOVED * n_moved)


def order_of_products(node: fx.Node) -> _Change | None:
    """(a @ b) @ c = a @ (b @ c), whichever takes less."""
    sides = _operands(node)
    if sides is None or len(_shape(node)) != 2 or not _is_exact(node):
        return None
    for inner, is_left in ((sides[0], True), (sides[1], False)):
        pair = _operands(inner)
        if pair is None or len(inner.users) != 1:
            continue
        a, b, c = (*pair, sides[1]) if is_left else (sides[0], *pair)
        (m, k), n, p = _shape(a), _shape(b)[1], _shape(c)[1]
        left_first, right_first = _cost(m, k, n) + _cost(m, n, p), _cost(k, n, p) + _cost(m, k, p)
        now, then = (left_first, right_first) if is_left else (right_first, left_first)
        if then >= SAVED * now:
            continue
        write = _Writer(node)
        ordered = (a, write(aten.mm.default, b, c)) if is_left else (write(aten.mm.default, a, b), c)
        what = f"a chain of products in an order that takes more: {m} by {k} by {n} by {p}"
        return _Change(write(aten.mm.default, *ordered), what)
    return None


def triangular_product(node: fx.Node) -> _Change | None:
    """A product of which only a triangle counts, or with triangular matrices, by blocks of rows without the zeros."""
    triangle = _TRIANGLES.get(node.target, "") if len(node.args) == 1 else ""
    product: Any = node.args[0] if triangle else node
    sides = _operands(product)
    if sides is None or len(_shape(product)) != 2 or (triangle and len(product.users) != 1):
        return None
    of_left, of_right = (_TRIANGLES.get(side.target, "") if len(side.args) == 1 else "" for side in sides)
    (n_rows, n_inner), n_columns = _shape(sides[0]), _shape(sides[1])[1]
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
    write = _Writer(node)
    pieces = [_block(write, block, *sides, n_columns) for block in blocks]
    whole = write(aten.cat.default, pieces)
    what = f"{1 - left:.0%} of the multiplications of a triangular product, {_shape(product)}"
    return _Change(write(node.target, whole) if triangle else whole, what)


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


def _block(write: _Writer, block: _Block, left: fx.Node, right: fx.Node, n_columns: int) -> fx.Node:
    """All columns of the block's rows."""
    rows = write(aten.slice.Tensor, write(aten.slice.Tensor, left, 0, *block.rows), 1, *block.inner)
    columns = write(aten.slice.Tensor, write(aten.slice.Tensor, right, 0, *block.inner), 1, *block.columns)
    product = write(aten.mm.default, rows, columns)
    before, after = block.columns[0], n_columns - block.columns[1]
    return write(aten.constant_pad_nd.default, product, [before, after]) if before or after else product


RULES: tuple[Rule, ...] = (
    product_with_diagonal,
    reduction_over_one,
    extremum_over_one,
    sum_of_product,
    order_of_products,
    triangular_product,
)
