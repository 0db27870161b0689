"""online_softmax: the maximum and the sum of exponentials in one walk over the row instead of two."""

from __future__ import annotations

from typing import NamedTuple, cast

import libcst as cst

from islands.operators.structural.analysis import Program, Scope, descendants
from islands.operators.structural.grids import fresh_name
from islands.operators.structural.places import last_character
from islands.operators.structural.recurrences import Accumulation, accumulations, assignment_of, is_power, statements_of
from islands.operators.structural.row_loops import RowLoop, row_loops
from islands.operators.structural.technique import Context, Rewrite, Technique
from islands.operators.structural.text import Edit, indent_of, line_end


class TwoWalks(NamedTuple):
    """A loop that finds a maximum, and a later one over the same row that sums exponentials of what is below it."""

    kernel: str
    maximum: Accumulation
    total: Accumulation
    chain: tuple[cst.BaseSmallStatement, ...]  # of the second loop: from the difference to the exponential
    power: cst.Call


class OnlineSoftmax(Technique[TwoWalks]):
    """m' = max(m, max(x)); s' = s * exp(m - m') + sum(exp(x - m')). The first walk goes away."""

    name = "online_softmax"
    prior = 0.1
    citation = "Milakov and Gimelshein 2018, https://arxiv.org/abs/1805.02867, algorithm 3"
    cost = 2.0

    def sites(self, program: Program) -> list[TwoWalks]:
        return [site for kernel in program.kernels.values() for site in _sites(program, kernel)]

    def rewrite(self, context: Context, site: TwoWalks) -> Rewrite | None:
        program = context.program
        top, total = site.maximum.name, site.total.name
        new = fresh_name(program, f"new_{top}")
        device, power = program.alias("triton.language"), program.text(site.power.func)
        first = program.span(min(site.chain, key=lambda s: program.span(s).start)).start
        indent = indent_of(program.source, first)
        whole = f"{new} = {device}.maximum({top}, {program.text(site.maximum.reduction)})"
        rescaled = f"{total} = {total} * {power}({top} - {new}) + "
        start, end = program.span(site.total.statement)
        edits = [
            _without_loop(program, site.maximum.loop),
            Edit(first, first, f"{whole}\n{indent}"),
            Edit(start, program.span(site.total.reduction).start, rescaled),
            *(Edit(*program.span(n), new) for s in site.chain for n in _reads(s, top)),
            Edit(end, end, f"\n{indent}{top} = {new}"),
        ]
        return Rewrite(tuple(edits), f"{top} and {total} of {site.kernel} in one walk")


def _sites(program: Program, kernel: Scope) -> list[TwoWalks]:
    found = [a for loop in row_loops(program, kernel) for a in accumulations(program, kernel, loop)]
    pairs = [(m, t) for m in found for t in found if (m.kind, t.kind) == ("max", "sum")]
    return [site for m, t in pairs if (site := _merged(program, kernel, m, t)) is not None]


def _merged(program: Program, kernel: Scope, maximum: Accumulation, total: Accumulation) -> TwoWalks | None:
    """The site where the first loop does nothing but find the maximum, from values that the second loop has as well,
    and the second nothing but sum the exponentials."""
    one, other = maximum.loop, total.loop
    in_order = program.span(one.loop.node).end < program.span(other.loop.node).start
    if not in_order or (one.extent, one.tile, one.loop.target) != (other.extent, other.tile, other.loop.target):
        return None
    chain, power = _chain(program, total, maximum.name)
    if power is None or not program.text(total.statement).endswith(program.text(total.reduction)):
        return None
    rest = [s for s in statements_of(one) if s is not maximum.statement]
    there = [s for s in statements_of(other) if s not in chain]
    same = [program.text(s) for s in rest] == [program.text(s) for s in there]
    only_simple = len(rest) + 1 == len(one.block.body) and len(there) + len(chain) == len(other.block.body)
    return TwoWalks(kernel.name, maximum, total, tuple(chain), power) if same and only_simple else None


def _chain(program: Program, total: Accumulation, top: str) -> tuple[list[cst.BaseSmallStatement], cst.Call | None]:
    """The statements from `x - top` over its exponential to the sum, and the exponential; no exponential where the sum
    is of something else."""
    chain: list[cst.BaseSmallStatement] = [total.statement]
    node, found = _resolved(total, total.reduction.args[0].value)
    chain += found
    if not isinstance(node, cst.Call) or not is_power(program, node):
        return chain, None
    exponent, found = _resolved(total, node.args[0].value)
    chain += found
    is_difference = isinstance(exponent, cst.BinaryOperation) and isinstance(exponent.operator, cst.Subtract)
    below = is_difference and program.text(cast(cst.BinaryOperation, exponent).right) == top
    return chain, node if below else None


def _resolved(total: Accumulation, node: cst.BaseExpression) -> tuple[cst.BaseExpression, list[cst.BaseSmallStatement]]:
    """What a name of the loop stands for, and the statement that says so."""
    if isinstance(node, cst.Name):
        for statement in statements_of(total.loop):
            value = assignment_of(statement)
            if value is not None and value[0] == node.value:
                return value[1], [statement]
    return node, []


def _reads(statement: cst.CSTNode, name: str) -> list[cst.Name]:
    return [n for n in descendants(statement) if isinstance(n, cst.Name) and n.value == name]


def _without_loop(program: Program, loop: RowLoop) -> Edit:
    node = loop.loop.node
    start = program.source.rfind("\n", 0, program.span(node).start) + 1
    return Edit(start, line_end(program.source, last_character(program, node)) + 1, "")
