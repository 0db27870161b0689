"""tile_row: a row that fills one huge tile becomes a loop over tiles; what a later walk needs, it loads again.

The inverse of one_pass: fewer registers a program, so no spills and more programs at once, for a second reading that
the L2 cache mostly answers.
"""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from islands.operators.structural.accesses import accesses_of
from islands.operators.structural.analysis import Program, Scope, argument, descendants
from islands.operators.structural.grids import fresh_name
from islands.operators.structural.kernels import is_row_kernel, tile_uses
from islands.operators.structural.mask_elision import mask_conditions
from islands.operators.structural.places import value_at
from islands.operators.structural.recurrences import JOINS, assignment_of
from islands.operators.structural.shapes import is_scalar, tile_names
from islands.operators.structural.straight_line import Reduction, StraightLine, straight_line
from islands.operators.structural.technique import Context, Rewrite, Technique
from islands.operators.structural.text import Edit, Span, indent_of, splice

_TILES = (512, 1024, 2048, 4096, 8192, 16384)
_NEUTRAL = {"sum": "0.0", "max": 'float("-inf")', "min": 'float("inf")'}


class RowTileSite(NamedTuple):
    """A kernel without branches whose one tile covers `extent`."""

    kernel: str
    extent: str
    tile: str
    graph: StraightLine


class TileRow(Technique[RowTileSite]):
    """One loop for every depth of reductions on reductions, stores in the last. Partial results lane by lane, or as
    scalars, which `online_softmax` can then merge."""

    name = "tile_row"
    prior = 0.05
    citation = "loop fission and recomputation: Chen et al. 2018, TVM, https://arxiv.org/abs/1802.04799, section 4"
    cost = 2.0

    def sites(self, program: Program) -> list[RowTileSite]:
        kernels = [k for k in program.kernels.values() if program.launches_of(k) and program.alias("triton.language")]
        return [site for kernel in kernels if (site := _site(program, kernel)) is not None]

    def rewrite(self, context: Context, site: RowTileSite) -> Rewrite | None:
        program, observed, rng = context
        whole = observed.value(site.kernel, site.tile)
        fitting = [tile for tile in _TILES if whole is None or tile < whole]
        if not fitting:
            return None
        tile = rng.choice(fitting)
        edits = [_body(program, site, by_lane=rng.random() < 0.5)]
        for launch in program.launches_of(program.kernels[site.kernel]):
            edits += value_at(program, launch.arguments[site.tile].value).place.set(str(tile))
        return Rewrite(tuple(edits), f"{site.extent} of {site.kernel} in tiles of {tile}, walks: {site.graph.n_walks}")


def _site(program: Program, kernel: Scope) -> RowTileSite | None:
    shapes = [name for name, use in tile_uses(program, kernel).items() if use.is_shape]
    if len(shapes) != 1 or tile_uses(program, kernel)[shapes[0]].is_elastic or not is_row_kernel(program, kernel):
        return None
    extents = _extents(program, kernel, shapes[0])
    launches = program.launches_of(kernel)
    if len(extents) != 1 or None in extents:
        return None
    extent = str(extents.pop())
    if not all(shapes[0] in x.arguments and extent in x.arguments for x in launches):
        return None
    graph = straight_line(program, kernel)
    return None if graph is None or graph.n_walks == 0 else RowTileSite(kernel.name, extent, shapes[0], graph)


def _extents(program: Program, kernel: Scope, tile: str) -> set[str | None]:
    """What the masks of the accesses to tiles compare with; None for an access that is not masked just so."""
    tiles = tile_names(program, kernel)
    extents: set[str | None] = set()
    for access in accesses_of(program, kernel):
        if all(is_scalar(program, a.value, tiles) for a in access.call.args):
            continue
        mask = argument(access.call, 1 if access.is_load else 2, "mask")
        conditions = None if mask is None else mask_conditions(program, kernel, mask)
        found = conditions is not None and len(conditions) == 1 and conditions[0][1] == tile
        extents.add(conditions[0][0] if found and conditions is not None else None)
    return extents


class _Names(NamedTuple):
    by_lane: bool  # partial results are tiles, else scalars
    lane_start: str
    partial: tuple[str, ...]  # by reduction: what a loop accumulates
    total: tuple[str, ...]  # by reduction: its value after the loop


def _total_name(program: Program, graph: StraightLine, index: int) -> str:
    """The program's own name for a reduction, where a statement does nothing but give it one."""
    reduction = graph.reductions[index]
    own = assignment_of(graph.steps[reduction.owner].node.body[0])
    is_named = own is not None and own[1] is reduction.call
    return own[0] if own is not None and is_named else fresh_name(program, f"whole_{reduction.kind}_{index}")


def _body(program: Program, site: RowTileSite, by_lane: bool) -> Edit:
    graph = site.graph
    taken = [f"{r.kind}_{i}" for i, r in enumerate(graph.reductions)]
    names = _Names(
        by_lane,
        fresh_name(program, "start"),
        tuple(fresh_name(program, f"partial_{name}") for name in taken),
        tuple(_total_name(program, graph, i) for i in range(len(taken))),
    )
    lines = _scalars(program, site, names, 0)
    for walk in range(1, graph.n_walks + 1):
        lines += _loop(program, site, names, walk)
        lines += _scalars(program, site, names, walk)
    first, last = graph.steps[0].node, graph.steps[-1].node
    start = program.span(first).start
    return Edit(start, program.span(last).end, f"\n{indent_of(program.source, start)}".join(lines))


def _loop(program: Program, site: RowTileSite, names: _Names, walk: int) -> list[str]:
    """One walk: initial values, the loop with all that its reductions and stores need, and the totals."""
    graph, device = site.graph, program.alias("triton.language")
    due = [i for i, r in enumerate(graph.reductions) if r.walk == walk]
    stores = graph.stores if walk == graph.n_walks else []
    needed = graph.needed([*stores, *(i for r in due for i in graph.reductions[r].reads)])
    before = [_initial(program, site, names, r) for r in due]
    inside: list[str] = []
    for i, step in enumerate(graph.steps):
        inside += [_accumulate(program, site, names, r) for r in due if graph.reductions[r].owner == i]
        inside += [_rendered(program, site, names, step.node)] if i in needed else []
    after = [
        f"{names.total[r]} = {device}.{graph.reductions[r].kind}({names.partial[r]}, axis=0)"
        for r in due
        if names.by_lane
    ]
    header = f"for {names.lane_start} in range(0, {site.extent}, {site.tile}):"
    return [*before, header, *(f"    {line}" for line in inside), *after]


def _initial(program: Program, site: RowTileSite, names: _Names, index: int) -> str:
    device, neutral = program.alias("triton.language"), _NEUTRAL[site.graph.reductions[index].kind]
    if names.by_lane:
        return f"{names.partial[index]} = {device}.full(({site.tile},), {neutral}, {device}.float32)"
    return f"{names.total[index]} = {neutral}"


def _accumulate(program: Program, site: RowTileSite, names: _Names, index: int) -> str:
    device, reduction = program.alias("triton.language"), site.graph.reductions[index]
    operand = _rendered(program, site, names, reduction.operand)
    running = names.partial[index] if names.by_lane else names.total[index]
    if not names.by_lane:
        operand = f"{device}.{reduction.kind}({operand}, axis=0)"
    if reduction.kind == "sum":
        return f"{running} += {operand}"
    return f"{running} = {device}.{JOINS[reduction.kind]}({running}, {operand})"


def _scalars(program: Program, site: RowTileSite, names: _Names, ready: int) -> list[str]:
    """The statements without tiles that can be done after a walk."""
    steps = [s for s in site.graph.steps if not s.is_tile and s.ready == ready]
    rendered = [(step.name, _rendered(program, site, names, step.node)) for step in steps]
    return [text for name, text in rendered if text.replace(" ", "") != f"{name}={name}"]


def _rendered(program: Program, site: RowTileSite, names: _Names, node: cst.CSTNode) -> str:
    """The text of a node inside a loop: totals instead of reductions, lanes counted from where the loop stands."""
    span = program.span(node)
    edits = [
        _within(span, program.span(r.call), names.total[i])
        for i, r in enumerate(site.graph.reductions)
        if _is_outermost(program, r, span) and r.call is not node
    ]
    for call in (n for n in descendants(node) if isinstance(n, cst.Call) and program.device_call(n) == "arange"):
        inner = program.span(call)
        if not any(e.start + span.start <= inner.start < e.end + span.start for e in edits):
            edits.append(_within(span, inner, f"({names.lane_start} + {program.text(call)})"))
    return splice(program.source[span.start : span.end], edits) or ""


def _is_outermost(program: Program, reduction: Reduction, around: Span) -> bool:
    """Whether a reduction lies in a piece of text and in no other reduction there."""
    span = program.span(reduction.call)
    if not (around.start <= span.start and span.end <= around.end):
        return False
    outer = [a for a in program.ancestors(reduction.call) if isinstance(a, cst.Call)]
    inside = [a for a in outer if around.start <= program.span(a).start and program.span(a).end <= around.end]
    return not any(program.device_call(a) in JOINS or program.device_call(a) == "sum" for a in inside)


def _within(around: Span, span: Span, text: str) -> Edit:
    return Edit(span.start - around.start, span.end - around.start, text)
