"""loop_unroll: several iterations in one, for more independent work and fewer branches."""

from __future__ import annotations

from islands.operators.structural.analysis import Program, Scope, integer, names_in
from islands.operators.structural.kernels import Loop
from islands.operators.structural.loop_pipeline import LoopSite, loop_sites, set_loop_option
from islands.operators.structural.technique import Context, Rewrite, Technique
from islands.operators.structural.text import Edit

_FACTORS = (2, 4, 8)


class LoopUnroll(Technique[LoopSite]):
    """By a factor, or wholly where every bound is known when the kernel is compiled."""

    name = "loop_unroll"
    prior = 0.02
    citation = (
        "tl.range(loop_unroll_factor), tl.static_range, https://triton-lang.org/main/python-api/triton.language.html"
    )

    def sites(self, program: Program) -> list[LoopSite]:
        return loop_sites(program)

    def rewrite(self, context: Context, site: LoopSite) -> Rewrite | None:
        program, _, rng = context
        if _is_static(program.kernels[site.kernel], site.loop) and rng.random() < 0.5:
            span = program.span(site.loop.call.func)
            line = program.line_of(span.start)
            text = f"{program.alias('triton.language')}.static_range"
            return Rewrite((Edit(span.start, span.end, text),), f"unrolled the loop in line {line} of {site.kernel}")
        return set_loop_option(program, site, "loop_unroll_factor", str(rng.choice(_FACTORS)))


def _is_static(kernel: Scope, loop: Loop) -> bool:
    known = {p.name for p in kernel.parameters if p.is_constexpr}
    bounds = [b for b in (loop.start, loop.stop, loop.step) if b is not None]
    plain = len(loop.call.args) == len(bounds)
    return plain and all(integer(b) is not None or (names_in(b) and names_in(b) <= known) for b in bounds)
