"""What a running value starts from: a literal, or a tile of zeros or of one number, in float32."""

from __future__ import annotations

import re
from typing import NamedTuple

import libcst as cst

from islands.operators.structural.analysis import Program, Scope, argument
from islands.operators.structural.row_loops import nearest

_NUMBER = re.compile(r"-?(\d+\.\d*(e[+-]?\d+)?|\d+e[+-]?\d+|float\(\"-?inf\"\)|float\('-?inf'\))")
_ZERO = re.compile(r"0(\.0*)?")


class Initial(NamedTuple):
    """A value before a loop: its text, its extents (none for a scalar), and whether it is zero."""

    text: str
    shape: tuple[str, ...]
    is_zero: bool


def initial_value(program: Program, kernel: Scope, name: str, position: int) -> Initial | None:
    """What a name holds at a position, where the statement that says so is always done and makes a float32."""
    binding = nearest(program, kernel, name, position)
    if binding is None or binding.value is None or not is_direct(program, kernel, binding.statement):
        return None
    return _of_expression(program, binding.value)


def is_direct(program: Program, kernel: Scope, statement: cst.CSTNode) -> bool:
    """Whether a small statement stands in the body of a kernel and in no block inside it."""
    line = program.parents[statement]
    return isinstance(kernel.node, cst.FunctionDef) and program.parents.get(line) is kernel.node.body


def _of_expression(program: Program, node: cst.BaseExpression) -> Initial | None:
    text = program.text(node)
    if _NUMBER.fullmatch(text):
        return Initial(text, (), _ZERO.fullmatch(text) is not None)
    if isinstance(node, cst.BinaryOperation):  # tl.zeros(...) - float("inf")
        inner = _of_expression(program, node.left)
        is_number = _NUMBER.fullmatch(program.text(node.right)) is not None
        return inner._replace(text=text, is_zero=False) if inner is not None and inner.shape and is_number else None
    if not isinstance(node, cst.Call) or program.device_call(node) not in ("zeros", "full"):
        return None
    is_full = program.device_call(node) == "full"
    value = argument(node, 1, "value") if is_full else None
    dtype = argument(node, 2 if is_full else 1, "dtype")
    shape = _extents(program, argument(node, 0, "shape"))
    if dtype is None or program.qualified(dtype) != "triton.language.float32" or not shape:
        return None
    is_zero = not is_full or (value is not None and _ZERO.fullmatch(program.text(value)) is not None)
    return Initial(text, shape, is_zero)


def _extents(program: Program, node: cst.BaseExpression | None) -> tuple[str, ...]:
    """The extents of a shape of at most two dimensions, each a name or an integer; nothing for any other."""
    if isinstance(node, cst.Tuple | cst.List):
        extents: list[cst.BaseExpression] = [element.value for element in node.elements]
    else:
        extents = [] if node is None else [node]
    plain = all(isinstance(e, cst.Name | cst.Integer) for e in extents)
    return tuple(program.text(e) for e in extents) if plain and len(extents) <= 2 else ()
