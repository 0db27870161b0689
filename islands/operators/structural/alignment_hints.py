"""alignment_hints: sizes and strides that are multiples of 2, 4 or 8 allow wider accesses.

Triton sees by itself when an integer argument is a multiple of 16; smaller powers of two it does not look for.
"""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from islands.operators.structural.analysis import Program, Scope, names_in
from islands.operators.structural.grids import first_line, fresh_name, operand
from islands.operators.structural.kernels import program_names
from islands.operators.structural.program_loop import add_arguments, add_parameters
from islands.operators.structural.row_loops import is_parameter
from islands.operators.structural.technique import Context, Rewrite, Technique


class ParameterSite(NamedTuple):
    """An integer parameter of a kernel that takes part in addresses or masks."""

    kernel: str
    parameter: str


class AlignmentHints(Technique[ParameterSite]):
    """`n = tl.multiple_of(n, ALIGN)`, with ALIGN computed by the host from n itself, so that it is always true."""

    name = "alignment_hints"
    citation = "tl.multiple_of, https://triton-lang.org/main/python-api/generated/triton.language.multiple_of.html"

    def sites(self, program: Program) -> list[ParameterSite]:
        kernels = [k for k in program.kernels.values() if program.launches_of(k)]
        return [ParameterSite(k.name, p) for k in kernels for p in _sizes(program, k)]

    def rewrite(self, context: Context, site: ParameterSite) -> Rewrite | None:
        program = context.program
        kernel, device = program.kernels[site.kernel], program.alias("triton.language")
        known = fresh_name(program, f"ALIGN_{site.parameter.upper()}")
        top = first_line(program, kernel, [f"{site.parameter} = {device}.multiple_of({site.parameter}, {known})"])
        if top is None:
            return None
        edits = [add_parameters(program, kernel, [f"{known}: {device}.constexpr = 1"]), top]
        for launch in program.launches_of(kernel):
            size = operand(program, launch.arguments[site.parameter].value)
            edits.append(add_arguments(program, launch, {known: f"min(16, {size} & -{size})"}))
        return Rewrite(tuple(edits), f"alignment of {site.parameter} of {site.kernel}")


def _sizes(program: Program, kernel: Scope) -> list[str]:
    """Run-time parameters that are multiplied with the program id, or that an index is compared with."""
    ids = program_names(program, kernel)
    found: dict[str, None] = {}
    for product in kernel.all(cst.BinaryOperation):
        if isinstance(product.operator, cst.Multiply):
            for one, other in ((product.left, product.right), (product.right, product.left)):
                if names_in(other) & ids or program.text(other).find("program_id") >= 0:
                    found.update(dict.fromkeys(names_in(one)))
    names = [n for n in found if is_parameter(program, kernel, cst.Name(n), constexpr=False)]
    return [n for n in names if all(n in launch.arguments for launch in program.launches_of(kernel))]
