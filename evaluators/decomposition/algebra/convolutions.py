"""Convolutions of which only sums are wanted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

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
    shape_of,
)

MIN_CHANNELS = 8  # of a convolution whose channels are added up
MOST_PRODUCTS = 1 << 26  # of channels in and out over all samples, which no library multiplies

_CONVOLUTIONS = frozenset(
    {
        *(aten.conv1d.default, aten.conv2d.default, aten.conv3d.default),
        *(aten.conv1d.padding, aten.conv2d.padding, aten.conv3d.padding),
    }
)
_TRANSPOSED = frozenset({aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input})
_SUMS = (aten.sum.dim_IntList, aten.sum.default)
_MEANS = (aten.mean.dim, aten.mean.default)
_POOLS = {aten.adaptive_avg_pool1d.default: 1, aten.adaptive_avg_pool2d.default: 2, aten.adaptive_avg_pool3d.default: 3}


class _Sum(NamedTuple):
    """A sum or mean over a convolution that nothing else needs."""

    convolution: fx.Node
    dims: tuple[int, ...]
    keeps: bool
    is_mean: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the convolution: samples, channels, positions."""
        return shape_of(self.convolution)

    @property
    def is_transposed(self) -> bool:
        return self.convolution.target in _TRANSPOSED

    @property
    def bias(self) -> Any:
        return argument(self.convolution, 2)


def sum_over_channels(node: fx.Node) -> Change | None:
    """A sum over the channels of a convolution is one channel, of weights that were added up."""
    its = _sum_of(node)
    if its is None or 1 not in its.dims or its.shape[1] < MIN_CHANNELS:
        return None
    write = Writer(node)
    given, weight, bias, *rest = (*its.convolution.args, None)[: max(3, len(its.convolution.args))]
    added = write(aten.sum.dim_IntList, weight, [1 if its.is_transposed else 0], True)
    added_bias = None if bias is None else write(aten.sum.dim_IntList, bias, [0], True)
    one = write(its.convolution.target, given, added, added_bias, *rest)
    others = [dim for dim in its.dims if dim != 1]
    total = write(aten.sum.dim_IntList, one, others, True) if others else one
    return Change(_ended(write, its, total), f"a {name_of(node)} over the channels of a convolution, {its.shape}")


def sum_over_positions(node: fx.Node) -> Change | None:
    """A transposed convolution that crops nothing gives every input element all of its weights: the sum over positions
    is a product of sums."""
    its = _sum_of(node)
    if its is None or not its.is_transposed or not set(range(2, len(its.shape))) <= set(its.dims):
        return None
    given, weight = its.convolution.args[:2]
    n_products = shape_of(given)[0] * math.prod(shape_of(weight)[:2])
    if any(_padding(its.convolution)) or n_products > MOST_PRODUCTS:
        return None
    write = Writer(node)
    positions = list(range(2, len(its.shape)))
    elements = write(aten.unsqueeze.default, write(aten.sum.dim_IntList, given, positions), -1)
    weights = write(aten.sum.dim_IntList, weight, positions)
    total = write(aten.sum.dim_IntList, write(aten.mul.Tensor, elements, weights), [1])
    if its.bias is not None:
        n_positions = math.prod(its.shape[2:])
        total = write(aten.add.Tensor, total, write(aten.mul.Tensor, its.bias, n_positions))
    for _ in positions:
        total = write(aten.unsqueeze.default, total, -1)
    others = [dim for dim in its.dims if dim < 2]
    total = write(aten.sum.dim_IntList, total, others, True) if others else total
    return Change(_ended(write, its, total), f"a {name_of(node)} over the positions of a convolution, {its.shape}")


def _sum_of(node: fx.Node) -> _Sum | None:
    """What a node adds up, where that is a convolution in one group of samples that come in a batch."""
    is_sum, is_mean = node.target in _SUMS, node.target in _MEANS or _is_pool_of_all(node)
    if not (is_sum or is_mean) or node.kwargs or not is_tensor(node.args[0]) or not is_exact(node):
        return None
    convolution: Any = node.args[0]
    is_known = convolution.target in _CONVOLUTIONS or convolution.target in _TRANSPOSED
    if not is_known or convolution.kwargs or len(convolution.users) != 1 or not is_exact(convolution):
        return None
    n_groups = argument(convolution, 6, 1)
    if n_groups != 1 or len(shape_of(convolution)) != len(shape_of(convolution.args[1])):
        return None
    if node.target in _POOLS:
        n_dims = len(shape_of(convolution))
        return _Sum(convolution, tuple(range(n_dims - _POOLS[node.target], n_dims)), True, True)
    return _Sum(convolution, dims_of(node), bool(argument(node, 2, False)), is_mean)


def _is_pool_of_all(node: fx.Node) -> bool:
    return node.target in _POOLS and all(size == 1 for size in _sizes(argument(node, 1)))


def _sizes(value: Any) -> Sequence[int]:
    return [value] if isinstance(value, int) else value


def _padding(convolution: fx.Node) -> Sequence[int]:
    """What a transposed convolution crops at each side."""
    return _sizes(argument(convolution, 4, 0))


def _ended(write: Writer, its: _Sum, total: fx.Node) -> fx.Node:
    """A sum with its dimensions kept, as the reduction has it."""
    if its.is_mean:
        total = write(aten.div.Tensor, total, math.prod(its.shape[dim] for dim in its.dims))
    return total if its.keeps else write(aten.squeeze.dims, total, list(its.dims))
