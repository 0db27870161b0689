"""one_pass: a row that fits one tile needs no loop, and later walks find it in registers."""

from __future__ import annotations

import math
from typing import NamedTuple

from islands.operators.structural.accesses import accesses_of
from islands.operators.structural.analysis import Launch, Program, Scope, keyword
from islands.operators.structural.choices import current_value
from islands.operators.structural.extents import longest_tile
from islands.operators.structural.kernels import tile_uses
from islands.operators.structural.knobs import knobs_of
from islands.operators.structural.places import call_option, value_at
from islands.operators.structural.row_loops import RowLoop, row_loops
from islands.operators.structural.technique import Context, Observed, Rewrite, Technique
from islands.operators.structural.text import Edit

_WARPS = (4, 8, 16, 32)
# 32 registers of each of 1024 threads. Rows of 65536 spilled: 1600 to 5400 us instead of 414 with loops (measured on an
# H200, layer norm of 2048 rows)
MOST_ELEMENTS = 32 * 1024
_MOST_PER_THREAD = 64


class RowSite(NamedTuple):
    """All loops of a kernel over the same row in the same tiles."""

    kernel: str
    loops: tuple[RowLoop, ...]


class OnePass(Technique[RowSite]):
    """The tile becomes the next power of two of the row; loops over it become `tl.static_range(0, 1)`. Not where the
    registers of one program would not hold it."""

    name = "one_pass"
    prior = 0.06
    citation = "fused softmax, https://triton-lang.org/main/getting-started/tutorials/02-fused-softmax.html"

    def sites(self, program: Program) -> list[RowSite]:
        if not program.alias("triton.language") or not program.alias("triton"):
            return []
        return [site for kernel in program.kernels.values() for site in _sites(program, kernel)]

    def rewrite(self, context: Context, site: RowSite) -> Rewrite | None:
        program, observed, rng = context
        size = _elements(program, observed, site)
        if size is not None and size > MOST_ELEMENTS:
            return None
        fitting = [w for w in _WARPS if size is None or size <= w * 32 * _MOST_PER_THREAD]
        device, warps = program.alias("triton.language"), rng.choice(fitting)
        edits: list[Edit] = []
        for loop in site.loops:
            edits += value_at(program, loop.loop.call).place.set(f"{device}.static_range(0, 1)")
            if loop.n_tiles is not None and loop.n_tiles.value is not None:
                edits += value_at(program, loop.n_tiles.value).place.set("1")
        for launch in program.launches_of(program.kernels[site.kernel]):
            edits += _tile_of_row(program, launch, site.loops[0])
            edits += call_option(program, launch.call, "num_warps").place.set(str(warps))
        edits += _one_policy(program, site)
        extent = site.loops[0].extent
        return Rewrite(tuple(edits), f"{extent} of {site.kernel} in one tile, {warps} warps")


def _elements(program: Program, observed: Observed, site: RowSite) -> int | None:
    """How many elements the tile of a program would have, or None where that is not known."""
    kernel, tile = program.kernels[site.kernel], site.loops[0].tile
    longest = longest_tile(program, observed, kernel, tile)
    others = [n for n, use in tile_uses(program, kernel).items() if use.is_shape and n != tile]
    knobs = {k.parameter: current_value(k, observed) for k in knobs_of(program) if k.kernel == kernel.name}
    rows = [knobs.get(name) or observed.value(kernel.name, name) or 1 for name in others]
    return None if longest is None else math.prod(rows) * longest


def _one_policy(program: Program, site: RowSite) -> list[Edit]:
    """Loads of one tensor lose hints that differ from walk to walk: only equal loads are made one by the compiler."""
    loads = [access for access in accesses_of(program, program.kernels[site.kernel]) if access.is_load]
    hints = [(a, program.text(h) if (h := keyword(a.call, "eviction_policy")) else "") for a in loads]
    differing = {a.tensor for a, hint in hints for b, other in hints if a.tensor == b.tensor and hint != other} - {""}
    places = [call_option(program, a.call, "eviction_policy").place for a, _ in hints if a.tensor in differing]
    return [edit for place in places for edit in place.set('"evict_first"')]


def _sites(program: Program, kernel: Scope) -> list[RowSite]:
    launches = program.launches_of(kernel)
    groups: dict[tuple[str, str], list[RowLoop]] = {}
    for loop in row_loops(program, kernel):
        groups.setdefault((loop.extent, loop.tile), []).append(loop)
    return [
        RowSite(kernel.name, tuple(loops))
        for (extent, tile), loops in groups.items()
        if launches and not tile_uses(program, kernel)[tile].times_program
        if all(extent in x.arguments and tile in x.arguments for x in launches)
    ]


def _tile_of_row(program: Program, launch: Launch, loop: RowLoop) -> tuple[Edit, ...]:
    extent = program.text(launch.arguments[loop.extent].value)
    text = f"{program.alias('triton')}.next_power_of_2({extent})"
    return value_at(program, launch.arguments[loop.tile].value).place.set(text)
