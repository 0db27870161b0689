"""Masks of a loop that are false in a lane for good once they are false in it."""

from __future__ import annotations

import libcst as cst

from islands.operators.structural.analysis import Program, Scope, names_in
from islands.operators.structural.kernels import Loop
from islands.operators.structural.names import Binding, bindings
from islands.operators.structural.row_loops import nearest

_MAX_DEPTH = 12


def only_falls(program: Program, kernel: Scope, loop: Loop, node: cst.BaseExpression) -> bool:
    """Whether a mask is the same in all steps of a loop, or `index < extent` with an index that grows with the loop, or
    several such."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.BitAnd):
        return all(only_falls(program, kernel, loop, side) for side in (node.left, node.right))
    if not isinstance(node, cst.Name):
        return False
    binding = nearest(program, kernel, node.value, program.span(node).start)
    if binding is None or binding.value is None:
        return False
    if isinstance(binding.value, cst.Comparison) and _is_inside(program, loop, binding):
        return _stops(program, kernel, loop, binding.value)
    return is_fixed(program, kernel, loop, node)


def is_fixed(program: Program, kernel: Scope, loop: Loop, node: cst.CSTNode, depth: int = 0) -> bool:
    """Whether an expression has one value in all steps of a loop and loads nothing in it."""
    names = names_in(node)
    loads = [c for c in program.device_calls(kernel, "load") if c is node or node in program.ancestors(c)]
    if depth > _MAX_DEPTH or loop.target in names or loads:
        return False
    inside = [b for n in names for b in bindings(program, kernel).get(n, []) if _is_inside(program, loop, b)]
    return all(b.value is not None and is_fixed(program, kernel, loop, b.value, depth + 1) for b in inside)


def _is_inside(program: Program, loop: Loop, binding: Binding) -> bool:
    return loop.node in program.ancestors(binding.statement)


def _stops(program: Program, kernel: Scope, loop: Loop, node: cst.Comparison) -> bool:
    """Whether a comparison is `index < extent`, with the loop's offset once among the summands of the index."""
    target = node.comparisons[0]
    is_bound = len(node.comparisons) == 1 and isinstance(target.operator, cst.LessThan)
    if not is_bound or not is_fixed(program, kernel, loop, target.comparator):
        return False
    terms = summands(program, kernel, loop, node.left)
    moving = [t for t in terms if not is_fixed(program, kernel, loop, t)]
    return len(moving) == 1 and program.text(moving[0]) == loop.target


def summands(program: Program, kernel: Scope, loop: Loop, node: cst.CSTNode, depth: int = 0) -> list[cst.CSTNode]:
    """The summands of an index, followed through names that a loop binds, and casts."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add):
        return [t for side in (node.left, node.right) for t in summands(program, kernel, loop, side, depth + 1)]
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value == "to":
        return summands(program, kernel, loop, node.func.value, depth + 1)
    if isinstance(node, cst.Name) and node.value != loop.target and depth < _MAX_DEPTH:
        binding = nearest(program, kernel, node.value, program.span(node).start)
        if binding is not None and binding.value is not None and _is_inside(program, loop, binding):
            return summands(program, kernel, loop, binding.value, depth + 1)
    return [node]
