"""online_softmax: the maximum and the sum of exponentials in one walk over the row instead of two."""

from __future__ import annotations

from typing import NamedTuple, cast

import libcst as cst

from islands.operators.structural.analysis import Program, Scope, descendants, names_in
from islands.operators.structural.defer_reduction import Accumulation, accumulations, statements_of
from islands.operators.structural.grids import fresh_name
from islands.operators.structural.places import last_character
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
    citation = "Milakov and Gimelshein 2018, https://arxiv.org/abs/1805.02867, algorithm 3"
    cost = 2.0

    def sites(self, program: Program) -> list[TwoWalks]:
        return [site for kernel in program.kernels.values() for site in _sites(program, kernel)]

    def rewrite(self, context: Context, site: TwoWalks) -> Rewrite | None:
        program = context.program
        device, top, total = program.alias("triton.language"), site.maximum.name, site.total.name
        new = fresh_name(program, f"new_{top}")
        statement = _statement_of(program, site.total)
        start = program.span(statement).start
        indent = indent_of(program.source, start)
        power = cast(cst.Call, site.total.call.args[0].value)
        lines = [
            f"{new} = {device}.maximum({top}, {program.text(site.maximum.call)})",
            f"{total} *= {program.text(power.func)}({top} - {new})",
            f"{top} = {new}",
        ]
        inserted = Edit(start, start, "".join(f"{line}\n{indent}" for line in lines))
        return Rewrite(
            (_without_loop(program, site.maximum.loop), inserted), f"{top} and {total} of {site.kernel} in one walk"
        )


def _sites(program: Program, kernel: Scope) -> list[TwoWalks]:
    found = [a for loop in row_loops(program, kernel) for a in accumulations(program, kernel, loop)]
    maxima = [a for a in found if a.kind == "max"]
    totals = [a for a in found if a.kind == "sum"]
    pairs = [(m, t) for m in maxima for t in totals]
    return [TwoWalks(kernel.name, m, t) for m, t in pairs if _can_merge(program, kernel, m, t)]


def _can_merge(program: Program, kernel: Scope, maximum: Accumulation, total: Accumulation) -> bool:
    """Whether the first loop does nothing but find the maximum, from values that the second loop has as well."""
    one, other = maximum.loop, total.loop
    in_order = program.span(one.loop.node).end < program.span(other.loop.node).start
    if not in_order or (one.extent, one.tile) != (other.extent, other.tile) or one.loop.target != other.loop.target:
        return False
    if len(statements_of(one)) != len(one.block.body) or program.device_calls(kernel, "store") is None:
        return False
    power = total.call.args[0].value
    if not isinstance(power, cst.Call) or program.device_call(power) not in ("exp", "exp2"):
        return False
    rest = [program.text(s) for s in statements_of(one) if maximum.call not in list(descendants(s))]
    there = [program.text(s) for s in statements_of(other)]
    reads = [s for s in statements_of(other) if maximum.name in names_in(s)]
    is_difference = program.text(power.args[0].value).replace(" ", "").endswith(f"-{maximum.name}")
    return is_difference and len(reads) == 1 and set(rest) <= set(there)


def _statement_of(program: Program, site: Accumulation) -> cst.CSTNode:
    return next(s for s in statements_of(site.loop) if site.call in list(descendants(s)))


def _without_loop(program: Program, loop: RowLoop) -> Edit:
    node = loop.loop.node
    start = program.source.rfind("\n", 0, program.span(node).start) + 1
    return Edit(start, line_end(program.source, last_character(program, node)) + 1, "")
