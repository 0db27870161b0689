"""The rules, applied to a module until none fits."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx, nn

from evaluators.decomposition.algebra.convolutions import sum_over_channels, sum_over_positions
from evaluators.decomposition.algebra.graph import Change, Rule, Writer, aten, shape_of
from evaluators.decomposition.algebra.products import order_of_products, product_with_diagonal, sum_of_product
from evaluators.decomposition.algebra.single_elements import extremum_over_one, reduction_over_one
from evaluators.decomposition.algebra.triangles import triangular_product

MOST_CHANGES = 32
RULES: tuple[Rule, ...] = (
    product_with_diagonal,
    reduction_over_one,
    extremum_over_one,
    sum_of_product,
    sum_over_positions,
    sum_over_channels,
    order_of_products,
    triangular_product,
)


class NotExported(Exception):  # noqa: N818  an answer, not an error
    """`torch.export` refused a module, so nothing is known of its work. The message is the first line of why."""


class Simplified(NamedTuple):
    """A module that answers the same from the same weights with less work, and what was left out."""

    model: nn.Module
    left_out: tuple[str, ...]


def simplified(model: nn.Module, inputs: Sequence[Any]) -> Simplified | None:
    """The module without its needless work; None where none is seen.

    Args:
        inputs: of its forward; only their shapes and dtypes matter.

    Raises:
        NotExported: the module cannot be exported.
    """
    try:
        module = _exported(model, inputs)
    except Exception as error:  # torch.export refuses in many ways what it cannot trace
        why = (str(error).strip().splitlines() or [""])[0][:200]
        raise NotExported(f"{type(error).__name__}: {why}") from error
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


def _change_of(node: fx.Node) -> Change | None:
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
    return shape_of(new) == shape_of(old) and new.meta["val"].dtype == old.meta["val"].dtype


def _laid_out(new: fx.Node, old: fx.Node) -> fx.Node:
    """In memory as before, where later views count on it."""
    if new.meta["val"].is_contiguous() or not old.meta["val"].is_contiguous():
        return new
    return Writer(old)(aten.contiguous.default, new)


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
