"""reciprocal: one division for a whole tile or a whole row, then products. The compiler moves it out of loops."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from islands.operators.structural.analysis import Program, Scope
from islands.operators.structural.axes import axes_of, axes_of_names
from islands.operators.structural.grids import operand
from islands.operators.structural.places import end_of
from islands.operators.structural.shapes import is_scalar, tile_names
from islands.operators.structural.technique import Context, Rewrite, Technique
from islands.operators.structural.text import Edit


class DivisionSite(NamedTuple):
    """Divisions of tiles by scalars, or by one value a row, in one kernel; rewritten together."""

    kernel: str
    divisions: tuple[cst.BinaryOperation, ...]


class Reciprocal(Technique[DivisionSite]):
    """tile / scalar = tile * (1 / scalar), and so for a value a row: one such division, or all of a kernel."""

    name = "reciprocal"
    prior = 0.02
    citation = "Granlund and Montgomery 1994, https://doi.org/10.1145/178243.178249; one ulp may change"

    def sites(self, program: Program) -> list[DivisionSite]:
        sites: list[DivisionSite] = []
        for name, kernel in program.kernels.items():
            divisions = _divisions(program, kernel)
            sites += [DivisionSite(name, (d,)) for d in divisions]
            if len(divisions) > 1:
                sites.append(DivisionSite(name, tuple(divisions)))
        return sites

    def rewrite(self, context: Context, site: DivisionSite) -> Rewrite | None:
        edits = [_edit(context.program, division) for division in site.divisions]
        return Rewrite(tuple(edits), f"{len(edits)} of division by a reciprocal in {site.kernel}")


def _divisions(program: Program, kernel: Scope) -> list[cst.BinaryOperation]:
    found = [n for n in kernel.all(cst.BinaryOperation) if isinstance(n.operator, cst.Divide)]
    return [n for n in found if _is_of_few(program, kernel, n)]


def _is_of_few(program: Program, kernel: Scope, division: cst.BinaryOperation) -> bool:
    """Whether there are fewer divisors than quotients: a tile by a scalar, or by a value a row or a column."""
    tiles = tile_names(program, kernel)
    if not is_scalar(program, division.left, tiles) and is_scalar(program, division.right, tiles):
        return True
    names = axes_of_names(program, kernel)
    left, right = (axes_of(program, kernel, side, names) for side in (division.left, division.right))
    return right < left and len(left) == max(len(axes) for axes in names.values())


def _edit(program: Program, division: cst.BinaryOperation) -> Edit:
    left_end = end_of(program, division.left)
    return Edit(left_end, end_of(program, division.right), f" * (1.0 / {operand(program, division.right)})")
