"""Along which axes of a two-dimensional tile a value of a kernel differs: rows, columns, both or none.

Inductor gives every tile two dimensions, `[XBLOCK, R0_BLOCK]`, so that what is a scalar a row has the shape
`[XBLOCK, 1]`, and only its axes tell it from a whole tile.
"""

from __future__ import annotations

from typing import cast

import libcst as cst

from islands.operators.structural.analysis import Program, Scope, argument, integer
from islands.operators.structural.names import bindings
from islands.operators.structural.parts import children
from islands.operators.structural.shapes import REDUCTIONS

Axes = frozenset[int]
NONE: Axes = frozenset()
BOTH: Axes = frozenset({0, 1})
_SHAPED = {"full": 0, "zeros": 0, "broadcast_to": 1, "reshape": 1, "view": 1}  # the argument that is a shape
_CUMULATIVE = ("cumsum", "cumprod", "associative_scan", "sort", "gather", "histogram", "dot")


def axes_of_names(program: Program, kernel: Scope) -> dict[str, Axes]:
    """The axes of every name that a kernel binds; a name that is bound several times has those of all its values."""

    def compute() -> dict[str, Axes]:
        statements = [(b.name, _right_side(b.statement)) for group in bindings(program, kernel).values() for b in group]
        found: dict[str, Axes] = {}
        while True:
            more = dict(found)
            for name, node in statements:
                more[name] = more.get(name, NONE) | axes_of(program, kernel, node, more)
            if more == found:
                return found
            found = more

    return program.derived(("axes", id(kernel)), compute)


def axes_of(program: Program, kernel: Scope, node: cst.CSTNode, names: dict[str, Axes]) -> Axes:
    """The axes of an expression, given those of names."""
    if isinstance(node, cst.Name):
        return names.get(node.value, NONE)
    if isinstance(node, cst.Attribute):
        return axes_of(program, kernel, node.value, names)
    if isinstance(node, cst.Subscript):
        return _indexed(program, node, axes_of(program, kernel, node.value, names))
    if isinstance(node, cst.Call):
        return _of_call(program, kernel, node, names)
    return _union(axes_of(program, kernel, child, names) for child in children(node))


def _of_call(program: Program, kernel: Scope, call: cst.Call, names: dict[str, Axes]) -> Axes:
    function = program.device_call(call)
    if function == "arange":
        return frozenset({-1})  # one dimension, of which an index says where it goes
    given = _union(axes_of(program, kernel, a.value, names) for a in call.args)
    if isinstance(call.func, cst.Attribute) and not function:
        given |= axes_of(program, kernel, call.func.value, names)
    if function in _SHAPED:
        return given | _of_shape(argument(call, _SHAPED[function], "shape"))
    if function in _CUMULATIVE:
        return BOTH
    if function in REDUCTIONS or _reduces(program, call):
        literals = [n for a in call.args if (n := integer(a.value)) is not None]
        return given - {literals[-1]} if literals else BOTH
    return given


def _reduces(program: Program, call: cst.Call) -> bool:
    """Whether a call is one of a function of the program that reduces tiles, with the axis as its last argument."""
    function = program.kernels.get(call.func.value) if isinstance(call.func, cst.Name) else None
    return function is not None and bool(program.device_calls(function, *REDUCTIONS))


def _indexed(program: Program, node: cst.Subscript, axes: Axes) -> Axes:
    """`x[None, :]` is a row and `x[:, None]` a column."""
    index = "".join(program.text(element.slice) for element in node.slice)
    if index == ":None":
        return frozenset({0}) if axes else NONE
    return frozenset({1}) if index == "None:" and axes else axes


def _of_shape(node: cst.BaseExpression | None) -> Axes:
    if not isinstance(node, cst.List | cst.Tuple):
        return BOTH
    extents = [element.value for element in node.elements]
    if len(extents) == 1:
        return frozenset({-1}) if integer(extents[0]) != 1 else NONE
    return frozenset(i for i, extent in enumerate(extents) if integer(extent) != 1)


def _union(found: object) -> Axes:
    return frozenset().union(*cast(list[Axes], found))


def _right_side(statement: cst.CSTNode) -> cst.CSTNode:
    if isinstance(statement, cst.For):
        return statement.iter
    return getattr(statement, "value", statement)
