"""The graph of a module as rules see it: nodes with the value that the graph keeps for their shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.fx.node import map_arg

aten = torch.ops.aten
PRODUCTS = (aten.matmul.default, aten.mm.default)


class Change(NamedTuple):
    """What stands for a node now."""

    node: fx.Node
    what: str


Rule = Callable[[fx.Node], Change | None]


class Writer:
    """Writes nodes before another one, each with the value that the graph keeps for its shape."""

    def __init__(self, before: fx.Node) -> None:
        self._before = before

    def __call__(self, target: Any, *arguments: Any) -> fx.Node:
        with self._before.graph.inserting_before(self._before):
            node = self._before.graph.call_function(target, arguments)
        node.meta["val"] = target(*map_arg(arguments, lambda given: given.meta["val"]))
        return node


def shape_of(node: Any) -> tuple[int, ...]:
    """Of the tensor that a node makes."""
    return tuple(node.meta["val"].shape)


def is_tensor(value: Any) -> bool:
    """Whether an argument is a node that makes a tensor."""
    return isinstance(value, fx.Node) and isinstance(value.meta.get("val"), torch.Tensor)


def is_exact(node: fx.Node) -> bool:
    """Whether intermediate results have the precision of sums: in half precision each rounding would count."""
    return node.meta["val"].dtype in (torch.float32, torch.float64)


def argument(node: fx.Node, index: int, default: Any = None) -> Any:
    """One by its place, or what it is where it is left out."""
    return node.args[index] if len(node.args) > index else default


def dims_of(node: fx.Node) -> tuple[int, ...]:
    """The dimensions that a reduction goes over, from 0; all of them where it names none. A scalar has none."""
    n_dims = len(shape_of(node.args[0]))
    named = argument(node, 1)
    named = [named] if isinstance(named, int) else named
    return tuple(sorted(dim % n_dims for dim in named)) if named and n_dims else tuple(range(n_dims))


def operands_of(node: Any) -> tuple[fx.Node, fx.Node] | None:
    """The two sides of a product of matrices, stacks of them included."""
    if not isinstance(node, fx.Node) or node.target not in PRODUCTS or node.kwargs:
        return None
    left, right = node.args
    if not (is_tensor(left) and is_tensor(right)) or min(len(shape_of(left)), len(shape_of(right))) < 2:
        return None
    return left, right


def name_of(node: fx.Node) -> str:
    """The bare name of its operation: "sum"."""
    return str(node.target).split(".")[1]
