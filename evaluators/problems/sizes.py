"""Sizes of a problem: numbers that its file assigns to names at module level, and how others are put in their place."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

Number = int | float

_BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}
_LARGEST_POWER = 64  # of 2 ** n and 1 << n; more is no size


class Size(NamedTuple):
    """A named number. A derived one is computed from other sizes (`dim = heads * 64`) and follows them."""

    name: str
    value: Number
    line: int
    is_derived: bool


def module_sizes(tree: ast.Module) -> dict[str, Size]:
    """The sizes of a file in the order of their lines; of two assignments to a name the last counts."""
    sizes: dict[str, Size] = {}
    for name, expression in _assignments(tree):
        value = _number(expression, sizes)
        if value is None:
            sizes.pop(name, None)
            continue
        is_derived = any(isinstance(node, ast.Name) for node in ast.walk(expression))
        sizes[name] = Size(name, value, expression.lineno, is_derived)
    return sizes


def with_sizes(source: str, sizes: Mapping[str, Number]) -> str:
    """The source with the module-level values of `sizes` put in the place of its own.

    Raises:
        SyntaxError: the source does not parse.
    """
    places = [(node, sizes[name]) for name, node in _assignments(ast.parse(source)) if name in sizes]
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    text = source.encode()
    for node, value in sorted(places, key=_position, reverse=True):
        assert node.end_lineno is not None and node.end_col_offset is not None
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        text = text[:start] + repr(value).encode() + text[end:]
    return text.decode()


def _position(place: tuple[ast.expr, Number]) -> tuple[int, int]:
    return place[0].lineno, place[0].col_offset


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Every `name = expression` at module level; `a, b = 1, 2` counts as two."""
    for statement in tree.body:
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            yield from _pairs(statement.target, statement.value)
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                yield from _pairs(target, statement.value)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for one, its_value in zip(target.elts, value.elts, strict=True):
            yield from _pairs(one, its_value)


def _number(node: ast.expr, known: Mapping[str, Size]) -> Number | None:
    """The value of an expression over numbers and known sizes, or None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, int | float) and not isinstance(node.value, bool) else None
    if isinstance(node, ast.Name):
        return known[node.id].value if node.id in known else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        operand = _number(node.operand, known)
        return None if operand is None else -operand
    if isinstance(node, ast.BinOp):
        return _binary(node, known)
    return None


def _binary(node: ast.BinOp, known: Mapping[str, Size]) -> Number | None:
    left, right = _number(node.left, known), _number(node.right, known)
    function = _BINARY.get(type(node.op))
    if left is None or right is None or function is None:
        return None
    if isinstance(node.op, ast.Pow | ast.LShift) and not 0 <= right <= _LARGEST_POWER:
        return None
    try:
        return function(left, right)
    except (ArithmeticError, TypeError):
        return None
