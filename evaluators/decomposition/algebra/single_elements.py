"""Reductions over dimensions of one element."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from torch import fx

from evaluators.decomposition.algebra.graph import Change, Writer, argument, aten, dims_of, is_tensor, name_of, shape_of

_OVER_ONE = (aten.sum.dim_IntList, aten.mean.dim, aten.amax.default, aten.amin.default, aten.logsumexp.default)


def reduction_over_one(node: fx.Node) -> Change | None:
    """Sums, means, extrema and log-sum-exps over dimensions of one element."""
    if node.target not in _OVER_ONE or node.kwargs or not is_tensor(node.args[0]) or not argument(node, 1):
        return None
    given: Any = node.args[0]
    dims = dims_of(node)
    if any(shape_of(given)[dim] != 1 for dim in dims) or given.meta["val"].dtype != node.meta["val"].dtype:
        return None
    if given.meta["val"].is_complex() and node.target is aten.logsumexp.default:  # the logarithm has one branch of many
        return None
    stays = _copied(Writer(node), given, () if argument(node, 2, False) else dims)
    return Change(stays, f"{name_of(node)} over one element, of {shape_of(given)}")


def extremum_over_one(node: fx.Node) -> Change | None:
    """The values of `max` and `min` along a dimension of one element."""
    if node.target is not operator.getitem or node.args[1] != 0:
        return None
    its: Any = node.args[0]
    if its.target not in (aten.max.dim, aten.min.dim):
        return None
    given, dims = its.args[0], dims_of(its)
    if any(shape_of(given)[dim] != 1 for dim in dims):
        return None
    stays = _copied(Writer(node), given, () if argument(its, 2, False) else dims)
    return Change(stays, f"{name_of(its)} over one element, of {shape_of(given)}")


def _copied(write: Writer, given: fx.Node, dims: Sequence[int]) -> fx.Node:
    """A tensor without dimensions of one element, in memory of its own: whoever changes one of the two in place, or
    gets both as answers, must not find them tied. A compiler writes the copy only where it is needed."""
    return write(aten.clone.default, write(aten.squeeze.dims, given, list(dims)) if dims else given)
