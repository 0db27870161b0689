"""alignment_hints: sizes and strides that are multiples of 2, 4 or 8 allow wider accesses.

Triton sees by itself when an integer argument is a multiple of 16; smaller powers of two it does not look for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst

from islands.operators.structural.analysis import Program, Scope, names_in
from islands.operators.structural.grids import first_line, fresh_name, operand
from islands.operators.structural.kernels import program_names
from islands.operators.structural.names import names_computed_from
from islands.operators.structural.program_loop import add_arguments, add_parameters
from islands.operators.structural.row_loops import is_parameter
from islands.operators.structural.technique import Context, Rewrite, Technique


class ParameterSite(NamedTuple):
    """An integer parameter of a kernel that takes part in addresses or masks."""

    kernel: str
    parameter: str


class AlignmentHints(Technique[ParameterSite]):
    """`n = n // ALIGN * ALIGN`, with ALIGN computed by the host from n itself, so that it changes nothing but what the
    compiler knows. (`tl.multiple_of` says nothing about arguments: it marks operations.)"""

    name = "alignment_hints"
    prior = 0.005
    citation = "vectorised global accesses, https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#coalesced-access-to-global-memory"

    def sites(self, program: Program) -> list[ParameterSite]:
        kernels = [k for k in program.kernels.values() if program.launches_of(k)]
        return [ParameterSite(k.name, p) for k in kernels for p in _sizes(program, k)]

    def rewrite(self, context: Context, site: ParameterSite) -> Rewrite | None:
        program = context.program
        kernel, device = program.kernels[site.kernel], program.alias("triton.language")
        known = fresh_name(program, f"ALIGN_{site.parameter.upper()}")
        top = first_line(program, kernel, [f"{site.parameter} = {site.parameter} // {known} * {known}"])
        if top is None:
            return None
        edits = [add_parameters(program, kernel, [f"{known}: {device}.constexpr = 1"]), top]
        for launch in program.launches_of(kernel):
            size = operand(program, launch.arguments[site.parameter].value)
            edits.append(add_arguments(program, launch, {known: f"min(16, {size} & -{size})"}))
        return Rewrite(tuple(edits), f"alignment of {site.parameter} of {site.kernel}")


def _sizes(program: Program, kernel: Scope) -> list[str]:
    """Run-time parameters that an index is multiplied with or compared with."""
    indices = _index_names(program, kernel)
    found: dict[str, None] = {}
    for one, other in _pairs(kernel):
        if isinstance(one, cst.Name) and (names_in(other) & indices or "program_id(" in program.text(other)):
            found[one.value] = None
    names = [n for n in found if is_parameter(program, kernel, cst.Name(n), constexpr=False)]
    return [n for n in names if all(n in launch.arguments for launch in program.launches_of(kernel))]


def _pairs(kernel: Scope) -> Iterator[tuple[cst.CSTNode, cst.CSTNode]]:
    """The operands of products in both orders, and the right and left sides of `<`."""
    for product in kernel.all(cst.BinaryOperation):
        if isinstance(product.operator, cst.Multiply):
            yield product.left, product.right
            yield product.right, product.left
    for comparison in kernel.all(cst.Comparison):
        if isinstance(comparison.comparisons[0].operator, cst.LessThan):
            yield comparison.comparisons[0].comparator, comparison.left


def _index_names(program: Program, kernel: Scope) -> set[str]:
    """The names that depend on the program id or on `tl.arange`, and on nothing that was loaded."""
    aranges = names_computed_from(program, kernel, lambda b: "arange(" in program.text(b.statement))
    loaded = names_computed_from(program, kernel, lambda b: "load(" in program.text(b.statement))
    return (program_names(program, kernel) | aranges) - loaded
