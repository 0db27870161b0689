"""loop_flatten: a nest of loops becomes one loop, so that pipelining does not drain between outer iterations."""

from __future__ import annotations

from islands.operators.structural.analysis import Program
from islands.operators.structural.kernels import loops_of
from islands.operators.structural.loop_pipeline import LoopSite, loop_sites, set_loop_option
from islands.operators.structural.technique import Context, Rewrite, Technique


class LoopFlatten(Technique[LoopSite]):
    """Applies to loops with another loop directly or deeper inside, or that call a helper."""

    name = "loop_flatten"
    prior = 0.005
    citation = "tl.range(flatten), https://triton-lang.org/main/python-api/generated/triton.language.range.html"

    def sites(self, program: Program) -> list[LoopSite]:
        return [site for site in loop_sites(program) if _has_inner_loop(program, site)]

    def rewrite(self, context: Context, site: LoopSite) -> Rewrite | None:
        return set_loop_option(context.program, site, "flatten", "True")


def _has_inner_loop(program: Program, site: LoopSite) -> bool:
    node = site.loop.node
    inner = [loop for loop in loops_of(program, program.kernels[site.kernel]) if loop.node is not node]
    return any(node in program.ancestors(loop.node) for loop in inner)
