"""welford_by_count: running means without a division an element, and lanes that are combined by sums."""

from __future__ import annotations

from islands.operators.structural import welford_about_first
from islands.operators.structural.analysis import Program, integer
from islands.operators.structural.grids import above_kernel, fresh_name, operand
from islands.operators.structural.kernels import Loop
from islands.operators.structural.places import add_argument
from islands.operators.structural.technique import Context, Rewrite, Technique
from islands.operators.structural.text import Edit
from islands.operators.structural.welford import Update, Welford, welford_sites
from islands.operators.structural.welford_about_first import First, edits_about_first, first_values

_SHARE_ABOUT_FIRST = 0.25

_UPDATE = """\
@triton.jit
def {name}(value, mean, m2, weight, step):
    delta = value - mean
    new_mean = mean + delta * (1.0 / (step + 1))
    return new_mean, m2 + delta * (value - new_mean), tl.full(weight.shape, step + 1, weight.dtype)


"""
_GROUP = """\
@triton.jit
def {name}(mean, m2, weight, value, value_m2, value_weight, step):
    counts = value_weight > 0
    delta = tl.where(counts, value - mean, 0.0)
    new_mean = mean + delta * (1.0 / (step + 1))
    return new_mean, m2 + delta * (value - new_mean), tl.where(counts, step + 1.0, weight)


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
    divides for every pair. One draw in four takes sums of differences from the first value of the row instead."""

    name = "welford_by_count"
    prior = 0.1
    citation = "Chan, Golub and LeVeque 1983, https://doi.org/10.1080/00031305.1983.10483115"

    def sites(self, program: Program) -> list[Welford]:
        return welford_sites(program)

    def rewrite(self, context: Context, site: Welford) -> Rewrite | None:
        program = context.program
        firsts = first_values(program, site) if context.rng.random() < _SHARE_ABOUT_FIRST else None
        if firsts is not None:
            return _about_first(program, site, firsts)
        kinds = {u.is_group: _GROUP if u.is_group else _UPDATE for u in site.updates}
        names = {k: fresh_name(program, "welford_group_step" if k else "welford_step") for k in kinds}
        join = fresh_name(program, "welford_total")
        text = "".join(kinds[k].format(name=names[k]) for k in kinds)
        text += _JOIN.format(name=join) if site.joins else ""
        edits = [above_kernel(program, program.kernels[site.kernel], text)]
        for found in site.updates:
            edits += [Edit(*program.span(found.call.func), names[found.is_group]), _with_step(program, found)]
        edits += [Edit(*program.span(call.func), join) for call in site.joins]
        said = "running means by count" if site.updates else "means of groups combined by sums"
        return Rewrite(tuple(edits), f"{said} in {site.kernel}")


def _about_first(program: Program, site: Welford, firsts: list[First]) -> Rewrite:
    update, join = fresh_name(program, "sums_step"), fresh_name(program, "sums_total")
    functions = welford_about_first.UPDATE.format(name=update) + welford_about_first.JOIN.format(name=join)
    edits = [above_kernel(program, program.kernels[site.kernel], functions)]
    for first in firsts:
        edits += edits_about_first(program, first, update, join, _step(program, first.update.loop))
    return Rewrite(tuple(edits), f"running means by sums about the first value in {site.kernel}")


def _with_step(program: Program, update: Update) -> Edit:
    """The number of the step as one more argument, or where the call said whether it is the first."""
    step = _step(program, update.loop)
    if update.is_group:
        return add_argument(program, update.call, step)
    return Edit(*program.span(update.call.args[4].value), step)


def _step(program: Program, loop: Loop) -> str:
    """The number of the iteration, from zero."""
    if loop.step is None or integer(loop.step) == 1:
        return loop.target
    return f"{loop.target} // {operand(program, loop.step)}"
