"""Loops of a kernel that walk over a row in tiles: `for start in range(0, n, BLOCK)` and its relatives."""

from __future__ import annotations

from typing import NamedTuple, cast

import libcst as cst

from islands.operators.structural.analysis import Program, Scope, integer
from islands.operators.structural.kernels import Loop, loops_of
from islands.operators.structural.names import Binding, bindings


class RowLoop(NamedTuple):
    """A loop whose iterations cover `extent` elements by `tile`. `n_tiles` is where the number of tiles is bound, if it
    has a name: `n_tiles = tl.cdiv(n, BLOCK)`."""

    loop: Loop
    extent: str  # name of a parameter of the kernel
    tile: str  # name of a compile-time parameter
    n_tiles: Binding | None

    @property
    def block(self) -> cst.IndentedBlock:
        return cast(cst.IndentedBlock, self.loop.node.body)


def row_loops(program: Program, kernel: Scope) -> list[RowLoop]:
    """The loops over rows of a kernel, in order of the text."""

    def compute() -> list[RowLoop]:
        found = [_row_loop(program, kernel, loop) for loop in loops_of(program, kernel)]
        return [r for r in found if r is not None and isinstance(r.loop.node.body, cst.IndentedBlock)]

    return program.derived(("row loops", id(kernel)), compute)


def is_parameter(program: Program, kernel: Scope, node: cst.CSTNode | None, constexpr: bool | None = None) -> bool:
    """Whether an expression is the name of a parameter that the kernel does not change."""
    if not isinstance(node, cst.Name) or bindings(program, kernel).get(node.value):
        return False
    parameter = kernel.parameter(node.value)
    return parameter is not None and constexpr in (None, parameter.is_constexpr)


def nearest(program: Program, kernel: Scope, name: str, position: int) -> Binding | None:
    """The latest binding of a name in the text before a position."""
    before = [b for b in bindings(program, kernel).get(name, []) if program.span(b.statement).start < position]
    return before[-1] if before else None


def _row_loop(program: Program, kernel: Scope, loop: Loop) -> RowLoop | None:
    if loop.kind == "tl.static_range" or (loop.start is not None and integer(loop.start) != 0):
        return None
    if loop.step is not None and integer(loop.step) != 1:
        return _of_parts(program, kernel, loop, loop.stop, loop.step, None)
    stop, count = loop.stop, None
    if isinstance(stop, cst.Name):
        found = bindings(program, kernel).get(stop.value, [])
        if len(found) != 1 or found[0].value is None:
            return None
        count, stop = found[0], found[0].value
    if not isinstance(stop, cst.Call) or program.device_call(stop) != "cdiv" or len(stop.args) != 2:
        return None
    return _of_parts(program, kernel, loop, stop.args[0].value, stop.args[1].value, count)


def _of_parts(
    program: Program, kernel: Scope, loop: Loop, extent: cst.CSTNode, tile: cst.CSTNode, count: Binding | None
) -> RowLoop | None:
    if not is_parameter(program, kernel, extent) or not is_parameter(program, kernel, tile, constexpr=True):
        return None
    return RowLoop(loop, cast(cst.Name, extent).value, cast(cst.Name, tile).value, count)
