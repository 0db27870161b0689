"""reverse_order: a later kernel starts where the one before it ended, which is what the L2 cache still holds."""

from __future__ import annotations

import libcst as cst

from islands.operators.structural.analysis import Program, Scope
from islands.operators.structural.grids import axes_of
from islands.operators.structural.kernels import axis_of, program_id_calls
from islands.operators.structural.rows_per_program import AxisSite
from islands.operators.structural.technique import Context, Rewrite, Technique
from islands.operators.structural.text import Edit


class ReverseOrder(Technique[AxisSite]):
    """Programs of one axis in reverse; a second time turns them back."""

    name = "reverse_order"
    prior = 0.01
    citation = "reuse of L2 between kernels; Jangda et al. 2024, https://arxiv.org/abs/2305.13450"

    def sites(self, program: Program) -> list[AxisSite]:
        kernels = [k for k in program.kernels.values() if program.launches_of(k)]
        return [AxisSite(k.name, axis) for k in kernels for axis in axes_of(program, k) or []]

    def rewrite(self, context: Context, site: AxisSite) -> Rewrite | None:
        program = context.program
        edits = _edits(program, program.kernels[site.kernel], site.axis)
        return Rewrite(tuple(edits), f"axis {site.axis} of {site.kernel} in reverse order")


def _edits(program: Program, kernel: Scope, axis: int) -> list[Edit]:
    device = program.alias("triton.language")
    edits: list[Edit] = []
    for call in program_id_calls(program, kernel, axis):
        reversed_before = _reversal(program, call)
        span = program.span(call if reversed_before is None else reversed_before)
        text = f"({device}.num_programs({axis}) - 1 - {device}.program_id({axis}))"
        edits.append(Edit(span.start, span.end, text if reversed_before is None else f"{device}.program_id({axis})"))
    return edits


def _reversal(program: Program, call: cst.Call) -> cst.CSTNode | None:
    """The expression `tl.num_programs(axis) - 1 - tl.program_id(axis)` around a call, if it is one."""
    around = program.parents[call]
    if not isinstance(around, cst.BinaryOperation) or not isinstance(around.operator, cst.Subtract):
        return None
    left = around.left
    if around.right is not call or not isinstance(left, cst.BinaryOperation) or not isinstance(left.left, cst.Call):
        return None
    is_count = program.device_call(left.left) == "num_programs" and axis_of(left.left) == axis_of(call)
    minus_one = isinstance(left.operator, cst.Subtract) and program.text(left.right) == "1"
    return around if is_count and minus_one else None
