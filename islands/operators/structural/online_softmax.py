"""online_softmax: the maximum and the sum of exponentials in one walk over the row instead of two."""

from __future__ import annotations

from typing import NamedTuple, cast

import libcst as cst

from islands.operators.structural.analysis import Program, Scope, names_in
from islands.operators.structural.grids import fresh_name
from islands.operators.structural.places import last_character
from islands.operators.structural.recurrences import Accumulation, accumulations, is_power, statements_of
from islands.operators.structural.row_loops import RowLoop, row_loops
from islands.operators.structural.technique import Context, Rewrite, Technique
from islands.operators.structural.text import Edit, indent_of, line_end


class TwoWalks(NamedTuple):
    """A loop that finds a maximum, a later one over the same row that sums exponentials of what is below it."""

    kernel: str
    maximum: Accumulation
    total: Accumulation


class OnlineSoftmax(Technique[TwoWalks]):
    """m' = max(m, max(x)); s' = s * exp(m - m') + sum(exp(x - m')). The first walk goes away."""

    name = "online_softmax"
    prior = 0.05
    citation = "Milakov and Gimelshein 2018, https://arxiv.org/abs/1805.02867, algorithm 3"
    cost = 2.0

    def sites(self, program: Program) -> list[TwoWalks]:
        return [site for kernel in program.kernels.values() for site in _sites(program, kernel)]

    def rewrite(self, context: Context, site: TwoWalks) -> Rewrite | None:
        program = context.program
        device, top, total = program.alias("triton.language"), site.maximum.name, site.total.name
        new = fresh_name(program, f"new_{top}")
        start = program.span(site.total.statement).start
        indent = indent_of(program.source, start)
        power = cast(cst.Call, site.total.reduction.args[0].value)
        lines = [
            f"{new} = {device}.maximum({top}, {program.text(site.maximum.reduction)})",
            f"{total} *= {program.text(power.func)}({top} - {new})",
            f"{top} = {new}",
        ]
        inserted = Edit(start, start, "".join(f"{line}\n{indent}" for line in lines))
        edits = (_without_loop(program, site.maximum.loop), inserted)
        return Rewrite(edits, f"{top} and {total} of {site.kernel} in one walk")


def _sites(program: Program, kernel: Scope) -> list[TwoWalks]:
    found = [a for loop in row_loops(program, kernel) for a in accumulations(program, kernel, loop)]
    pairs = [(m, t) for m in found for t in found if (m.kind, t.kind) == ("max", "sum")]
    return [TwoWalks(kernel.name, m, t) for m, t in pairs if _can_merge(program, m, t)]


def _can_merge(program: Program, maximum: Accumulation, total: Accumulation) -> bool:
    """Whether the first loop does nothing but find the maximum, from values that the second loop has as well."""
    one, other = maximum.loop, total.loop
    in_order = program.span(one.loop.node).end < program.span(other.loop.node).start
    if not in_order or (one.extent, one.tile, one.loop.target) != (other.extent, other.tile, other.loop.target):
        return False
    rest = [program.text(s) for s in statements_of(one) if s is not maximum.statement]
    there = [program.text(s) for s in statements_of(other)]
    if len(rest) + 1 != len(one.block.body) or not set(rest) <= set(there):
        return False
    power = total.reduction.args[0].value
    readers = [s for s in statements_of(other) if maximum.name in names_in(s)]
    return is_power(program, power) and readers == [total.statement] and _is_below(program, power, maximum.name)


def _is_below(program: Program, power: cst.CSTNode, name: str) -> bool:
    """Whether an exponent is something minus the maximum."""
    exponent = cast(cst.Call, power).args[0].value
    is_difference = isinstance(exponent, cst.BinaryOperation) and isinstance(exponent.operator, cst.Subtract)
    return is_difference and program.text(cast(cst.BinaryOperation, exponent).right) == name


def _without_loop(program: Program, loop: RowLoop) -> Edit:
    node = loop.loop.node
    start = program.source.rfind("\n", 0, program.span(node).start) + 1
    return Edit(start, line_end(program.source, last_character(program, node)) + 1, "")
