"""Values written in generated code, read without running it."""

from __future__ import annotations

import ast
import math
from typing import Any

_NAMES = {"inf": math.inf, "nan": math.nan, "True": True, "False": False, "None": None}
_UNKNOWN = "?"


def literal(node: ast.expr) -> Any:
    """The value of an expression; a dotted name is its text, a call is a dict of its keywords with "call"."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Tuple):
        return tuple(literal(element) for element in node.elts)
    if isinstance(node, ast.List | ast.Set):
        return [literal(element) for element in node.elts]
    if isinstance(node, ast.Dict):
        return {literal(k) if k else _UNKNOWN: literal(v) for k, v in zip(node.keys, node.values, strict=True)}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -literal(node.operand)
    if isinstance(node, ast.Call):
        return {"call": ast.unparse(node.func)} | {k.arg: literal(k.value) for k in node.keywords if k.arg}
    if isinstance(node, ast.Name):
        return _NAMES.get(node.id, node.id)
    return ast.unparse(node)


def whole_numbers(node: ast.expr) -> tuple[int, ...]:
    """A tuple of integers.

    Raises:
        ValueError: it is something else, a symbolic size for example.
    """
    value = literal(node)
    if not isinstance(value, tuple) or not all(isinstance(v, int) for v in value):
        raise ValueError(f"expected a tuple of whole numbers, got {ast.unparse(node)}")
    return value


def keywords(call: ast.Call) -> dict[str, Any]:
    """The keyword arguments of a call, read by `literal`."""
    return {k.arg: literal(k.value) for k in call.keywords if k.arg}
