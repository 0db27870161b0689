"""loop_pipeline: the loads of later iterations are in flight while this one computes."""

from __future__ import annotations

from typing import NamedTuple

from islands.operators.structural.analysis import Program
from islands.operators.structural.kernels import Loop, loops_of
from islands.operators.structural.knobs import loop_option
from islands.operators.structural.num_stages import pipelines_by_itself
from islands.operators.structural.setting import fits_shared
from islands.operators.structural.technique import Context, Rewrite, Technique

_STAGES = (1, 2, 3, 4, 5, 6, 8)


class LoopSite(NamedTuple):
    """One counted loop of a kernel."""

    kernel: str
    loop: Loop


def loop_sites(program: Program) -> list[LoopSite]:
    """The loops of a program that are not unrolled by the language."""
    if not program.alias("triton.language"):
        return []
    kernels = program.kernels.items()
    return [LoopSite(n, loop) for n, k in kernels for loop in loops_of(program, k) if loop.kind != "tl.static_range"]


def set_loop_option(program: Program, site: LoopSite, name: str, value: str) -> Rewrite | None:
    """The edits that give a loop an option, or None when it has that value."""
    text, place = loop_option(program, site.loop, name)
    if text == value:
        return None
    line = program.line_of(program.span(site.loop.node).start)
    detail = f"{name} of the loop in line {line} of {site.kernel} {text or 'unset'} -> {value}"
    return Rewrite(place.set(value), detail)


class LoopPipeline(Technique[LoopSite]):
    name = "loop_pipeline"
    prior = 0.05
    citation = "tl.range(num_stages), https://triton-lang.org/main/python-api/generated/triton.language.range.html"

    def sites(self, program: Program) -> list[LoopSite]:
        return loop_sites(program)

    def rewrite(self, context: Context, site: LoopSite) -> Rewrite | None:
        program, observed, rng = context
        stages = rng.choice(_STAGES)
        is_first = loop_option(program, site.loop, "num_stages").text is None
        if is_first and stages == 1 and not pipelines_by_itself(program, site.kernel):
            return None
        at = loops_of(program, program.kernels[site.kernel]).index(site.loop)
        if not fits_shared(program, observed, site.kernel, {}, {at: stages}):
            return None
        return set_loop_option(program, site, "num_stages", str(stages))
