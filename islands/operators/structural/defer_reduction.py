"""defer_reduction: a loop accumulates lane by lane in float32, and the tile is reduced once, after the loop.

A reduction of a tile synchronises the warps of a program; inside a loop it also keeps the next loads from starting.
"""

from __future__ import annotations

import re

import libcst as cst

from islands.operators.structural.analysis import Program, descendants
from islands.operators.structural.grids import fresh_name
from islands.operators.structural.kernels import is_row_kernel
from islands.operators.structural.places import last_character
from islands.operators.structural.recurrences import JOINS, Accumulation, Online, accumulations, online_recurrence
from islands.operators.structural.row_loops import RowLoop, row_loops
from islands.operators.structural.technique import Context, Rewrite, Technique
from islands.operators.structural.text import Edit, indent_of, line_end

_LOWEST = "-3.0e38"  # close to the least float32, and unlike -inf without NaN in a difference
_INITIAL = {"sum": "0.0", "max": 'float("-inf")', "min": 'float("inf")'}


class DeferReduction(Technique[Accumulation | Online]):
    """For sums, maxima, minima, and the online recurrence of softmax, in loops over rows of one dimension."""

    name = "defer_reduction"
    prior = 0.05
    citation = "Milakov and Gimelshein 2018, https://arxiv.org/abs/1805.02867, section 3: the recurrence is associative"
    cost = 2.0

    def sites(self, program: Program) -> list[Accumulation | Online]:
        kernels = [k for k in program.kernels.values() if is_row_kernel(program, k)]
        sites: list[Accumulation | Online] = []
        for kernel in kernels:
            for loop in row_loops(program, kernel):
                online = online_recurrence(program, kernel, loop)
                sites += accumulations(program, kernel, loop)
                sites += [] if online is None else [online]
        return sites

    def rewrite(self, context: Context, site: Accumulation | Online) -> Rewrite | None:
        program = context.program
        if isinstance(site, Online):
            return Rewrite(_defer_online(program, site), f"{site.top} and {site.total} of {site.kernel} lane by lane")
        return Rewrite(_defer(program, site), f"{site.kind} into {site.name} of {site.kernel} after its loop")


def _defer(program: Program, site: Accumulation) -> tuple[Edit, ...]:
    device = program.alias("triton.language")
    lanes = fresh_name(program, f"{site.name}_lanes")
    start = f"{lanes} = {device}.full(({site.loop.tile},), {_INITIAL[site.kind]}, {device}.float32)"
    total = f"{device}.{site.kind}({lanes}, axis=0)"
    joined = f"{site.name} + {total}" if site.kind == "sum" else f"{device}.{JOINS[site.kind]}({site.name}, {total})"
    names = [n for n in descendants(site.statement) if isinstance(n, cst.Name) and n.value == site.name]
    return (
        *_around_loop(program, site.loop, [start], [f"{site.name} = {joined}"]),
        *(Edit(*program.span(n), lanes) for n in names),
        _without_reduction(program, site.reduction),
    )


def _defer_online(program: Program, site: Online) -> tuple[Edit, ...]:
    """Every lane keeps a maximum and a sum of its own; after the loop they are brought to one maximum and added."""
    device = program.alias("triton.language")
    whole = fresh_name(program, f"{site.top}_of_lanes")
    before = [
        f"{site.top} = {device}.full(({site.loop.tile},), {_LOWEST}, {device}.float32)",
        f"{site.total} = {device}.full(({site.loop.tile},), 0.0, {device}.float32)",
    ]
    factor = re.sub(rf"\b{re.escape(site.new)}\b", whole, program.text(site.factor))
    after = [
        f"{whole} = {device}.max({site.top}, axis=0)",
        f"{site.total} = {device}.sum({site.total} * {factor}, axis=0)",
        f"{site.top} = {whole}",
    ]
    edits = _around_loop(program, site.loop, before, after)
    return (*edits, *(_without_reduction(program, call) for call in site.reductions))


def _around_loop(program: Program, loop: RowLoop, before: list[str], after: list[str]) -> list[Edit]:
    """The edits that put lines before and after a loop."""
    start = program.span(loop.loop.node).start
    indent = indent_of(program.source, start)
    end = line_end(program.source, last_character(program, loop.loop.node))
    return [
        Edit(start, start, "".join(f"{line}\n{indent}" for line in before)),
        Edit(end, end, "".join(f"\n{indent}{line}" for line in after)),
    ]


def _without_reduction(program: Program, call: cst.Call) -> Edit:
    """The tile instead of its reduction."""
    return Edit(*program.span(call), f"({program.text(call.args[0].value)})")
