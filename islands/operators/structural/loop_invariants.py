"""loop_invariants: what a loop computes anew is not moved in front of it, so that fewer registers live as long as the
loop."""

from __future__ import annotations

from islands.operators.structural.analysis import Program
from islands.operators.structural.loop_pipeline import LoopSite, loop_sites, set_loop_option
from islands.operators.structural.technique import Context, Rewrite, Technique


class LoopInvariants(Technique[LoopSite]):
    """`tl.range(..., disable_licm=True)`, and back."""

    name = "loop_invariants"
    prior = 0.005
    citation = "tl.range(disable_licm), https://triton-lang.org/main/python-api/generated/triton.language.range.html"

    def sites(self, program: Program) -> list[LoopSite]:
        return loop_sites(program)

    def rewrite(self, context: Context, site: LoopSite) -> Rewrite | None:
        return set_loop_option(context.program, site, "disable_licm", "True")
