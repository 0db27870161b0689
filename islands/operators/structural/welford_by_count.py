"""welford_by_count: running means without a division an element, and lanes that are combined by sums."""

from __future__ import annotations

from islands.operators.structural.analysis import Program, integer
from islands.operators.structural.grids import above_kernel, fresh_name, operand
from islands.operators.structural.kernels import Loop
from islands.operators.structural.technique import Context, Rewrite, Technique
from islands.operators.structural.text import Edit
from islands.operators.structural.welford import Welford, welford_sites

_UPDATE = """\
@triton.jit
def {name}(value, mean, m2, weight, step):
    delta = value - mean
    new_mean = mean + delta * (1.0 / (step + 1))
    return new_mean, m2 + delta * (value - new_mean), tl.full(weight.shape, step + 1, weight.dtype)


"""
_JOIN = """\
@triton.jit
def {name}(mean, m2, weight, dim: tl.constexpr):
    total = tl.sum(weight, dim)
    centre = tl.sum(mean * weight, dim) / tl.maximum(total, 1.0)
    delta = mean - tl.expand_dims(centre, dim)
    return centre, tl.sum(m2 + weight * delta * delta, dim), total


"""


class WelfordByCount(Technique[Welford]):
    """In step k every lane that counts has k values, so the mean moves by delta / (k + 1) with one division a step; for
    the first, mean and m2 are zero, which gives the value and zero. After the loop, sums in place of a reduction that
    divides for every pair."""

    name = "welford_by_count"
    prior = 0.1
    citation = "Chan, Golub and LeVeque 1983, https://doi.org/10.1080/00031305.1983.10483115"

    def sites(self, program: Program) -> list[Welford]:
        return welford_sites(program)

    def rewrite(self, context: Context, site: Welford) -> Rewrite | None:
        program = context.program
        update, join = fresh_name(program, "welford_step"), fresh_name(program, "welford_total")
        text = _UPDATE.format(name=update) if site.updates else ""
        text += _JOIN.format(name=join) if site.joins else ""
        edits = [above_kernel(program, program.kernels[site.kernel], text)]
        for found in site.updates:
            edits += [Edit(*program.span(found.call.func), update)]
            edits += [Edit(*program.span(found.call.args[4].value), _step(program, found.loop))]
        edits += [Edit(*program.span(call.func), join) for call in site.joins]
        said = "running means by count" if site.updates else "means of groups combined by sums"
        return Rewrite(tuple(edits), f"{said} in {site.kernel}")


def _step(program: Program, loop: Loop) -> str:
    """The number of the iteration, from zero."""
    if loop.step is None or integer(loop.step) == 1:
        return loop.target
    return f"{loop.target} // {operand(program, loop.step)}"
