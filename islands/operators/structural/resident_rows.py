"""resident_rows: no more rows at a time than the L2 cache holds, so that what a row's walk reads again is still there.

A kernel that walks its rows twice reads them from DRAM twice when the rows in flight exceed the cache: on an H200 with
rows of 256 KB, a few programs on each of 132 multiprocessors are too many already. One or two per multiprocessor, with
many warps each and a tile that gives every thread a few vectors, keep as many bytes in flight.
"""

from __future__ import annotations

from typing import NamedTuple

from islands.operators.structural.analysis import Program, Scope
from islands.operators.structural.choices import current_value
from islands.operators.structural.extents import longest_tile
from islands.operators.structural.gpus import n_multiprocessors
from islands.operators.structural.keep_for_walk import Walks, policies_by_walk, walks_of
from islands.operators.structural.knobs import Knob, KnobKind, knobs_of
from islands.operators.structural.persistent import can_stride, stride_over_grid
from islands.operators.structural.row_loops import row_loops
from islands.operators.structural.setting import fits_shared
from islands.operators.structural.technique import Context, Observed, Rewrite, Technique

_PER_MULTIPROCESSOR = (1, 2)
_WARPS = (16, 32, 32)
_ELEMENTS_PER_THREAD = (8, 16, 16, 32)


class RowsSite(NamedTuple):
    """A kernel with a grid that can be strided over, and loops that read the same rows more than once."""

    kernel: str
    walks: Walks
    tiles: tuple[str, ...]  # compile-time parameters that its loops step by


class ResidentRows(Technique[RowsSite]):
    """Programs, warps, tiles and cache policies at once: each alone makes such a kernel slower."""

    name = "resident_rows"
    prior = 0.15
    citation = "cache blocking: Lam, Rothberg, Wolf 1991, https://doi.org/10.1145/106972.106981; persistent threads"
    cost = 2.0

    def sites(self, program: Program) -> list[RowsSite]:
        return [site for kernel in program.kernels.values() if (site := _site(program, kernel)) is not None]

    def rewrite(self, context: Context, site: RowsSite) -> Rewrite | None:
        program, observed, rng = context
        n_programs = n_multiprocessors(observed) * rng.choice(_PER_MULTIPROCESSOR)
        warps = rng.choice(_WARPS)
        values = {"num_warps": warps, **_tiles(context, site, 32 * warps * rng.choice(_ELEMENTS_PER_THREAD))}
        if not fits_shared(program, observed, site.kernel, values, {}):
            return None
        edits = [*stride_over_grid(program, program.kernels[site.kernel], n_programs)]
        for knob in _knobs(program, site.kernel):
            if knob.parameter in values and values[knob.parameter] != current_value(knob, observed):
                edits += knob.place.set(str(values[knob.parameter]))
        edits += policies_by_walk(program, site.walks)
        shown = ", ".join(f"{name} {value}" for name, value in values.items())
        return Rewrite(tuple(edits), f"{n_programs} programs of {site.kernel} at a time, {shown}")


def _site(program: Program, kernel: Scope) -> RowsSite | None:
    loops = row_loops(program, kernel)
    tiles = {loop.tile for loop in loops}
    walks = walks_of(program, kernel)
    if len(loops) < 2 or len(tiles) != 1 or walks is None or not can_stride(program, kernel):
        return None
    known = {knob.parameter for knob in _knobs(program, kernel.name)}
    return RowsSite(kernel.name, walks, tuple(tiles)) if tiles <= known else None


def _knobs(program: Program, kernel: str) -> list[Knob]:
    kinds = (KnobKind.TILE, KnobKind.WARPS)
    return [knob for knob in knobs_of(program) if knob.kernel == kernel and knob.kind in kinds]


def _tiles(context: Context, site: RowsSite, n_elements: int) -> dict[str, int]:
    """One row at a time, in tiles of about so many elements."""
    program, observed, _ = context
    kernel = program.kernels[site.kernel]
    shapes = [k.parameter for k in _knobs(program, site.kernel) if k.kind is KnobKind.TILE and k.use and k.use.is_shape]
    return {name: _at_most(program, observed, kernel, name, n_elements) if name in site.tiles else 1 for name in shapes}


def _at_most(program: Program, observed: Observed, kernel: Scope, name: str, n_elements: int) -> int:
    longest = longest_tile(program, observed, kernel, name)
    return n_elements if longest is None else min(n_elements, longest)
