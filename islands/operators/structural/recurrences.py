"""Running values of loops over rows: sums, maxima and minima, and the online recurrence of softmax."""

from __future__ import annotations

import re
from typing import NamedTuple

import libcst as cst

from islands.operators.structural.analysis import Program, Scope, argument, descendants, names_in
from islands.operators.structural.row_loops import RowLoop, nearest

JOINS = {"max": "maximum", "min": "minimum"}
_POWERS = ("exp", "exp2", "math.exp", "math.exp2")
_LOWEST_LITERAL = re.compile(r"-[\d.]+e\+?\d+|-float\(\"inf\"\)|float\(\"-inf\"\)")
_ZERO_LITERAL = re.compile(r"0(\.0*)?")


class Accumulation(NamedTuple):
    """`total += tl.sum(tile, axis=0)`, or the same with a maximum or a minimum."""

    kernel: str
    loop: RowLoop
    statement: cst.BaseSmallStatement
    name: str
    kind: str  # "sum", "max", "min"
    reduction: cst.Call


class Online(NamedTuple):
    """`new = tl.maximum(top, tl.max(x)); total = total * tl.exp(top - new) + tl.sum(...); top = new`."""

    kernel: str
    loop: RowLoop
    top: str
    new: str
    total: str
    reductions: tuple[cst.Call, cst.Call]
    factor: cst.Call


def statements_of(loop: RowLoop) -> list[cst.BaseSmallStatement]:
    """The simple statements directly in a loop."""
    lines = [line for line in loop.block.body if isinstance(line, cst.SimpleStatementLine)]
    return [statement for line in lines for statement in line.body]


def accumulations(program: Program, kernel: Scope, loop: RowLoop) -> list[Accumulation]:
    """The statements of a loop that do nothing but add to a scalar that the loop does not read otherwise."""
    found: list[Accumulation] = []
    for statement in statements_of(loop):
        match = _accumulation(program, statement)
        if match is not None and _n_names(loop.loop.node, match[0]) == _n_names(statement, match[0]):
            found.append(Accumulation(kernel.name, loop, statement, *match))
    return found


def online_recurrence(program: Program, kernel: Scope, loop: RowLoop) -> Online | None:
    """The online recurrence in a loop, where its running values start from literals."""
    statements = statements_of(loop)
    for i, first in enumerate(statements):
        for second in statements[i + 1 :]:
            found = _recurrence(program, kernel, loop, first, second)
            if found is not None and _starts_from_literals(program, kernel, found):
                return found
    return None


def is_power(program: Program, node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Call) and program.device_call(node) in _POWERS and len(node.args) == 1


def _accumulation(program: Program, statement: cst.BaseSmallStatement) -> tuple[str, str, cst.Call] | None:
    """Name, kind and reduction of `s += tl.sum(x)`, `s = s + tl.sum(x)` or `m = tl.maximum(m, tl.max(x))`."""
    if isinstance(statement, cst.AugAssign):
        call = _reduction(program, statement.value, "sum")
        is_sum = isinstance(statement.operator, cst.AddAssign) and isinstance(statement.target, cst.Name)
        return (program.text(statement.target), "sum", call) if call is not None and is_sum else None
    assigned = assignment_of(statement)
    for kind, one, other in operands_of(program, assigned[1]) if assigned is not None else ():
        call = _reduction(program, other, kind)
        if call is not None and assigned is not None and program.text(one) == assigned[0]:
            return assigned[0], kind, call
    return None


def _reduction(program: Program, node: cst.CSTNode, kind: str) -> cst.Call | None:
    """The node where it is `tl.sum(tile, axis=0)` or the like."""
    if not isinstance(node, cst.Call) or program.device_call(node) != kind or not 1 <= len(node.args) <= 2:
        return None
    axis = argument(node, 1, "axis")
    is_whole = len(node.args) == 1 or (axis is not None and program.text(axis) == "0")
    return node if is_whole and node.args[0].keyword is None else None


def operands_of(program: Program, node: cst.CSTNode) -> list[tuple[str, cst.CSTNode, cst.CSTNode]]:
    """Kind and operands of a sum, a maximum or a minimum of two, in both orders."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add):
        return [("sum", node.left, node.right), ("sum", node.right, node.left)]
    kinds = [
        kind for kind, function in JOINS.items() if isinstance(node, cst.Call) and program.device_call(node) == function
    ]
    if not kinds or not isinstance(node, cst.Call) or len(node.args) != 2:
        return []
    one, other = node.args[0].value, node.args[1].value
    return [(kinds[0], one, other), (kinds[0], other, one)]


def assignment_of(statement: cst.CSTNode) -> tuple[str, cst.BaseExpression] | None:
    """Name and value of an assignment to one name."""
    if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
        target = statement.targets[0].target
        return (target.value, statement.value) if isinstance(target, cst.Name) else None
    return None


def _n_names(node: cst.CSTNode, name: str) -> int:
    return sum(isinstance(n, cst.Name) and n.value == name for n in descendants(node))


def _recurrence(
    program: Program, kernel: Scope, loop: RowLoop, first: cst.CSTNode, second: cst.CSTNode
) -> Online | None:
    top, total = _new_maximum(program, first), _rescaled_sum(program, second)
    if top is None or total is None:
        return None
    (new, old, maximum), (name, factor, added) = top, total
    moved = [s for s in statements_of(loop) if program.text(s).replace(" ", "") == f"{old}={new}"]
    if names_in(factor.args[0].value) != {old, new} or len(moved) != 1:
        return None
    expected = {old: _n_names(first, old) + _n_names(second, old) + 1, name: _n_names(second, name)}
    if any(_n_names(loop.loop.node, n) != count for n, count in expected.items()):
        return None
    return Online(kernel.name, loop, old, new, name, (maximum, added), factor)


def _new_maximum(program: Program, statement: cst.CSTNode) -> tuple[str, str, cst.Call] | None:
    """Names and reduction of `new = tl.maximum(old, tl.max(x))`."""
    assigned = assignment_of(statement)
    for kind, one, other in operands_of(program, assigned[1]) if assigned is not None else ():
        call = _reduction(program, other, "max") if kind == "max" else None
        if call is not None and assigned is not None and isinstance(one, cst.Name):
            return assigned[0], one.value, call
    return None


def _rescaled_sum(program: Program, statement: cst.CSTNode) -> tuple[str, cst.Call, cst.Call] | None:
    """Name, factor and reduction of `s = s * tl.exp(old - new) + tl.sum(...)`."""
    assigned = assignment_of(statement)
    for kind, one, other in operands_of(program, assigned[1]) if assigned is not None else ():
        call = _reduction(program, other, kind) if kind == "sum" else None
        if call is None or assigned is None or not isinstance(one, cst.BinaryOperation):
            continue
        for scaled, factor in ((one.left, one.right), (one.right, one.left)):
            is_scaled = isinstance(one.operator, cst.Multiply) and program.text(scaled) == assigned[0]
            if is_scaled and isinstance(factor, cst.Call) and is_power(program, factor):
                return assigned[0], factor, call
    return None


def _starts_from_literals(program: Program, kernel: Scope, site: Online) -> bool:
    position = program.span(site.loop.loop.node).start
    starts = [nearest(program, kernel, name, position) for name in (site.top, site.total)]
    top, total = (program.text(b.value) if b is not None and b.value is not None else "" for b in starts)
    return _LOWEST_LITERAL.fullmatch(top) is not None and _ZERO_LITERAL.fullmatch(total) is not None
