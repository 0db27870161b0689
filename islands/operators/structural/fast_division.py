"""fast_division: a division or root that rounds exactly costs several times one that is right to two ulps."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from islands.operators.structural.analysis import Program
from islands.operators.structural.grids import operand
from islands.operators.structural.technique import Context, Rewrite, Technique
from islands.operators.structural.text import Edit


class RoundedSite(NamedTuple):
    """Calls of one kernel that are rewritten together."""

    kernel: str
    calls: tuple[cst.Call, ...]


class FastDivision(Technique[RoundedSite]):
    """div_rn(a, b) = a / b, or a * (1 / b); sqrt_rn(a) = sqrt(a): one call, or all of a kernel."""

    name = "fast_division"
    prior = 0.03
    citation = (
        "div.full and div.rn, https://docs.nvidia.com/cuda/parallel-thread-execution/#floating-point-instructions-div"
    )

    def sites(self, program: Program) -> list[RoundedSite]:
        sites: list[RoundedSite] = []
        for name, kernel in program.kernels.items():
            calls = [c for c in program.device_calls(kernel, "div_rn", "sqrt_rn") if not any(a.keyword for a in c.args)]
            sites += [RoundedSite(name, (call,)) for call in calls]
            if len(calls) > 1:
                sites.append(RoundedSite(name, tuple(calls)))
        return sites

    def rewrite(self, context: Context, site: RoundedSite) -> Rewrite | None:
        by_product = context.rng.random() < 0.5
        edits = [_edit(context.program, call, by_product) for call in site.calls]
        said = "products with a reciprocal" if by_product else "fast divisions"
        return Rewrite(tuple(edits), f"{len(edits)} of exact division and root to {said} in {site.kernel}")


def _edit(program: Program, call: cst.Call, by_product: bool) -> Edit:
    span = program.span(call)
    if program.device_call(call) == "sqrt_rn":
        return Edit(
            span.start, span.end, f"{program.alias('triton.language')}.sqrt({program.text(call.args[0].value)})"
        )
    left, right = (operand(program, argument.value) for argument in call.args[:2])
    return Edit(span.start, span.end, f"({left} * (1.0 / {right}))" if by_product else f"({left} / {right})")
