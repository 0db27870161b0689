"""Which values of a kernel are tiles and which are scalars."""

from __future__ import annotations

import libcst as cst

from islands.operators.structural.analysis import Program, Scope
from islands.operators.structural.kernels import is_row_kernel
from islands.operators.structural.names import bindings
from islands.operators.structural.parts import children

REDUCTIONS = frozenset(["sum", "max", "min", "argmax", "argmin", "xor_sum", "reduce"])
_TILES = frozenset(["arange", "zeros", "full", "load", "zeros_like"])


def tile_names(program: Program, kernel: Scope) -> set[str]:
    """The names of a kernel that may hold a tile. A reduction of a one-dimensional tile is a scalar."""

    def compute() -> set[str]:
        everything = [b for group in bindings(program, kernel).values() for b in group]
        reads = [(b.name, _read(program, kernel, _right_side(b.statement))) for b in everything]
        tiles: set[str] = set()
        while True:
            more = {name for name, (names, makes) in reads if name not in tiles and (makes or names & tiles)}
            if not more:
                return tiles
            tiles |= more

    return program.derived(("tile names", id(kernel)), compute)


def is_scalar(program: Program, node: cst.CSTNode, tiles: set[str]) -> bool:
    """Whether an expression holds no tile, given the names that do."""
    names, makes = _read(program, None, node)
    return not makes and not names & tiles


def _right_side(statement: cst.CSTNode) -> cst.CSTNode:
    if isinstance(statement, cst.For):
        return statement.iter
    return getattr(statement, "value", statement)


def _read(program: Program, kernel: Scope | None, node: cst.CSTNode) -> tuple[set[str], bool]:
    """The names that an expression reads outside reductions, and whether it makes a tile by itself."""
    names: set[str] = set()
    makes = False
    stack = [node]
    while stack:
        item = stack.pop()
        if isinstance(item, cst.Call):
            function = program.device_call(item) or _method(item)
            if function in REDUCTIONS and (kernel is None or is_row_kernel(program, kernel)):
                continue
            if function == "load":
                pointer_names, pointer_makes = _read(program, kernel, item.args[0]) if item.args else (set(), False)
                names |= pointer_names
                makes |= pointer_makes
                continue
            makes |= function in _TILES
        if isinstance(item, cst.Name):
            names.add(item.value)
        elif isinstance(item, cst.Attribute | cst.Arg):
            stack.append(item.value)
        else:
            stack.extend(children(item))
    return names, makes


def _method(call: cst.Call) -> str:
    """The name of a method of a tensor that is called, as in `x.sum()`."""
    return call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
