"""defer_reduction: a loop accumulates lane by lane, and the tile is reduced once, after the loop.

A reduction of a tile synchronises the warps of a program; inside a loop it also keeps the next loads from starting.
"""

from __future__ import annotations

import re
from typing import NamedTuple, cast

import libcst as cst

from islands.operators.structural.analysis import Program, Scope, argument, names_in
from islands.operators.structural.grids import fresh_name
from islands.operators.structural.kernels import is_row_kernel
from islands.operators.structural.places import last_character
from islands.operators.structural.row_loops import RowLoop, nearest, row_loops
from islands.operators.structural.technique import Context, Rewrite, Technique
from islands.operators.structural.text import Edit, indent_of, line_end

_LOWEST = "-3.0e38"  # close to the least float32, and unlike -inf without NaN in a difference
_INITIAL = {"sum": "0.0", "max": 'float("-inf")', "min": 'float("inf")'}
_JOIN = {"max": "maximum", "min": "minimum"}


class Accumulation(NamedTuple):
    """`total += tl.sum(tile, axis=0)`, or the same with a maximum or a minimum."""

    kernel: str
    loop: RowLoop
    name: str
    kind: str  # "sum", "max", "min"
    call: cst.Call  # the reduction


class Online(NamedTuple):
    """`new = tl.maximum(top, tl.max(x)); total = total * tl.exp(top - new) + tl.sum(...); top = new`."""

    kernel: str
    loop: RowLoop
    top: str
    new: str
    total: str
    reductions: tuple[cst.Call, cst.Call]
    factor: cst.Call


class DeferReduction(Technique[Accumulation | Online]):
    """For sums, maxima, minima, and the online recurrence of softmax, in loops over rows of one dimension."""

    name = "defer_reduction"
    citation = (
        "Milakov and Gimelshein 2018, online normalizer calculation for softmax, https://arxiv.org/abs/1805.02867"
    )
    cost = 2.0

    def sites(self, program: Program) -> list[Accumulation | Online]:
        kernels = [k for k in program.kernels.values() if is_row_kernel(program, k)]
        loops = [(k, loop) for k in kernels for loop in row_loops(program, k)]
        return [
            s
            for kernel, loop in loops
            for s in [*accumulations(program, kernel, loop), *_online(program, kernel, loop)]
        ]

    def rewrite(self, context: Context, site: Accumulation | Online) -> Rewrite | None:
        program = context.program
        if isinstance(site, Online):
            return Rewrite(_defer_online(program, site), f"{site.top} and {site.total} of {site.kernel} lane by lane")
        return Rewrite(_defer(program, site), f"{site.kind} into {site.name} of {site.kernel} after its loop")


def accumulations(program: Program, kernel: Scope, loop: RowLoop) -> list[Accumulation]:
    """The statements of a loop that do nothing but add to a scalar that the loop does not read otherwise."""
    found: list[Accumulation] = []
    for statement in statements_of(loop):
        match = _accumulation(program, statement)
        if match is not None and _n_uses(program, kernel, loop, match[0]) == _n_names(statement, match[0]):
            found.append(Accumulation(kernel.name, loop, *match))
    return found


def statements_of(loop: RowLoop) -> list[cst.BaseSmallStatement]:
    """The simple statements directly in a loop."""
    lines = [line for line in loop.block.body if isinstance(line, cst.SimpleStatementLine)]
    return [statement for line in lines for statement in line.body]


def reduction(program: Program, node: cst.CSTNode, kind: str) -> cst.Call | None:
    """The node where it is `tl.sum(tile, axis=0)` or the like."""
    if not isinstance(node, cst.Call) or program.device_call(node) != kind or len(node.args) > 2:
        return None
    axis = argument(node, 1, "axis")
    return node if axis is None or program.text(axis) == "0" else None


def around_loop(program: Program, loop: RowLoop, before: list[str], after: list[str]) -> list[Edit]:
    """The edits that put lines before and after a loop."""
    start = program.span(loop.loop.node).start
    indent = indent_of(program.source, start)
    end = line_end(program.source, last_character(program, loop.loop.node))
    return [
        Edit(start, start, "".join(f"{line}\n{indent}" for line in before)),
        Edit(end, end, "".join(f"\n{indent}{line}" for line in after)),
    ]


def _accumulation(program: Program, statement: cst.BaseSmallStatement) -> tuple[str, str, cst.Call] | None:
    """Name, kind and reduction of `s += tl.sum(x)`, `s = s + tl.sum(x)` or `m = tl.maximum(m, tl.max(x))`."""
    if isinstance(statement, cst.AugAssign) and isinstance(statement.operator, cst.AddAssign):
        call = reduction(program, statement.value, "sum")
        return (cast(cst.Name, statement.target).value, "sum", call) if call and _is_name(statement.target) else None
    if (
        not isinstance(statement, cst.Assign)
        or len(statement.targets) != 1
        or not _is_name(statement.targets[0].target)
    ):
        return None
    name = cast(cst.Name, statement.targets[0].target).value
    for kind, one, other in _joins(program, statement.value):
        call = reduction(program, other, kind)
        if call is not None and isinstance(one, cst.Name) and one.value == name:
            return name, kind, call
    return None


def _joins(program: Program, node: cst.CSTNode) -> list[tuple[str, cst.CSTNode, cst.CSTNode]]:
    """Kind and operands of a sum, a maximum or a minimum of two, in both orders."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add):
        pair, kind = (node.left, node.right), "sum"
    elif isinstance(node, cst.Call) and len(node.args) == 2 and program.device_call(node) in _JOIN.values():
        pair = (node.args[0].value, node.args[1].value)
        kind = next(k for k, v in _JOIN.items() if v == program.device_call(node))
    else:
        return []
    return [(kind, pair[0], pair[1]), (kind, pair[1], pair[0])]


def _is_name(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Name)


def _n_uses(program: Program, kernel: Scope, loop: RowLoop, name: str) -> int:
    inside = program.span(loop.loop.node)
    spans = [program.span(n) for n in kernel.all(cst.Name) if n.value == name]
    return sum(inside.start <= s.start < inside.end for s in spans)


def _n_names(node: cst.CSTNode, name: str) -> int:
    from islands.operators.structural.analysis import descendants

    return sum(isinstance(n, cst.Name) and n.value == name for n in descendants(node))


def _defer(program: Program, site: Accumulation) -> tuple[Edit, ...]:
    device = program.alias("triton.language")
    lanes = fresh_name(program, f"{site.name}_lanes")
    start = f"{lanes} = {device}.full(({site.loop.tile},), {_INITIAL[site.kind]}, {device}.float32)"
    total = f"{device}.{site.kind}({lanes}, axis=0)"
    joined = f"{site.name} + {total}" if site.kind == "sum" else f"{device}.{_JOIN[site.kind]}({site.name}, {total})"
    statement = next(s for s in statements_of(site.loop) if site.call in _below(s))
    edits = around_loop(program, site.loop, [start], [f"{site.name} = {joined}"])
    edits.append(_unreduce(program, site.call))
    edits += [
        Edit(*program.span(n), lanes) for n in _below(statement) if isinstance(n, cst.Name) and n.value == site.name
    ]
    return tuple(edits)


def _below(node: cst.CSTNode) -> list[cst.CSTNode]:
    from islands.operators.structural.analysis import descendants

    return list(descendants(node))


def _unreduce(program: Program, call: cst.Call) -> Edit:
    """The tile instead of its reduction."""
    return Edit(*program.span(call), f"({program.text(call.args[0].value)})")


def _online(program: Program, kernel: Scope, loop: RowLoop) -> list[Online]:
    """The online recurrence in a loop, where its running values start from literals."""
    statements = statements_of(loop)
    for i, first in enumerate(statements):
        for second in statements[i + 1 :]:
            found = _recurrence(program, kernel, loop, first, second)
            if found is not None and _starts_from_literals(program, kernel, found):
                return [found]
    return []


def _recurrence(
    program: Program, kernel: Scope, loop: RowLoop, first: cst.CSTNode, second: cst.CSTNode
) -> Online | None:
    top = _new_maximum(program, first)
    total = _rescaled_sum(program, second)
    if top is None or total is None:
        return None
    (new, old, maximum), (name, factor, added) = top, total
    moved = [s for s in statements_of(loop) if program.text(s).replace(" ", "") == f"{old}={new}"]
    if names_in(factor.args[0].value) != {old, new} or len(moved) != 1:
        return None
    counts = {old: _n_names(first, old) + _n_names(second, old) + 1, name: _n_names(second, name)}
    if any(_n_uses(program, kernel, loop, n) != count for n, count in counts.items()):
        return None
    return Online(kernel.name, loop, old, new, name, (maximum, added), factor)


def _new_maximum(program: Program, statement: cst.CSTNode) -> tuple[str, str, cst.Call] | None:
    """Names and reduction of `new = tl.maximum(old, tl.max(x))`."""
    if not isinstance(statement, cst.Assign) or not _is_name(statement.targets[0].target):
        return None
    for kind, one, other in _joins(program, statement.value):
        call = reduction(program, other, "max")
        if kind == "max" and call is not None and isinstance(one, cst.Name):
            return cast(cst.Name, statement.targets[0].target).value, one.value, call
    return None


def _rescaled_sum(program: Program, statement: cst.CSTNode) -> tuple[str, cst.Call, cst.Call] | None:
    """Name, factor and reduction of `s = s * tl.exp(old - new) + tl.sum(...)`."""
    if not isinstance(statement, cst.Assign) or not _is_name(statement.targets[0].target):
        return None
    name = cast(cst.Name, statement.targets[0].target).value
    for kind, one, other in _joins(program, statement.value):
        call = reduction(program, other, "sum")
        if kind != "sum" or call is None or not isinstance(one, cst.BinaryOperation):
            continue
        for scaled, factor in ((one.left, one.right), (one.right, one.left)):
            is_power = isinstance(factor, cst.Call) and program.device_call(factor) in ("exp", "exp2")
            if is_power and isinstance(one.operator, cst.Multiply) and program.text(scaled) == name:
                return name, cast(cst.Call, factor), call
    return None


def _starts_from_literals(program: Program, kernel: Scope, site: Online) -> bool:
    position = program.span(site.loop.loop.node).start
    starts = [nearest(program, kernel, name, position) for name in (site.top, site.total)]
    texts = [program.text(b.value) if b is not None and b.value is not None else "" for b in starts]
    is_low = re.fullmatch(r"-?[\d.]+e[+]?\d+|-?float\(\"-?inf\"\)", texts[0]) is not None and "-" in texts[0]
    return is_low and re.fullmatch(r"0(\.0*)?", texts[1]) is not None


def _defer_online(program: Program, site: Online) -> tuple[Edit, ...]:
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
    edits = around_loop(program, site.loop, before, after)
    return (*edits, *(_unreduce(program, call) for call in site.reductions))
