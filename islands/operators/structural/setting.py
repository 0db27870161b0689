"""Setting knobs: the base of techniques that set one, and what any setting must respect."""

from __future__ import annotations

import math
from collections.abc import Mapping

from islands.operators.structural.analysis import Program, Scope
from islands.operators.structural.choices import current_value, draw_value
from islands.operators.structural.extents import SHARED_BYTES, longest_tile, shared_bytes
from islands.operators.structural.kernels import loops_of, tile_uses
from islands.operators.structural.knobs import Knob, KnobKind, TileShape, kernel_knobs, knobs_of, loop_option
from islands.operators.structural.row_loops import row_loops
from islands.operators.structural.technique import Context, Observed, Rewrite, Technique

# a thread that holds more elements of one tile spills and compiles for many seconds; with less than half an element
# most threads only repeat what others do
MOST_ELEMENTS_PER_THREAD = 256
LEAST_ELEMENTS_PER_THREAD = 0.5
# of tiles of two dimensions that loops walk over rows with: several live as long as the loop
MOST_ELEMENTS_OF_WALK = 32 * 1024
MOST_ELEMENTS_PER_THREAD_OF_WALK = 64


class KnobTechnique(Technique[Knob]):
    """Sets one knob of one kind to another value."""

    kind: KnobKind

    def sites(self, program: Program) -> list[Knob]:
        return [k for k in knobs_of(program) if k.kind is self.kind]

    def rewrite(self, context: Context, site: Knob) -> Rewrite | None:
        value = draw_value(site, context.observed, context.rng)
        if value is None or not fits(context.program, context.observed, site, {site.parameter: value}):
            return None
        return set_knob(site, value, context.observed)


def set_knob(knob: Knob, value: int, observed: Observed) -> Rewrite:
    """The edits that give a knob a value, with "BLOCK of softmax_kernel 1024 -> 4096" as the detail."""
    before = current_value(knob, observed)
    owner = f" of {knob.kernel}" if knob.kernel else ""
    shown = knob.text if before is None else before
    return Rewrite(knob.place.set(str(value)), f"{knob.parameter}{owner} {shown or 'unset'} -> {value}")


def fits(program: Program, observed: Observed, knob: Knob, changed: Mapping[str, int]) -> bool:
    """Whether values suit threads, rows and shared memory; true where that cannot be told.

    `changed` has the values that parameters of the knob's kernel are about to get.
    """
    kernel = program.kernels.get(knob.kernel)
    if kernel is None:
        return True
    longest = {n: longest_tile(program, observed, kernel, n) or v for n, v in changed.items() if n != "num_warps"}
    if any(changed[name] > most for name, most in longest.items()):
        return False
    is_in_memory = fits_shared(program, observed, knob.kernel, changed, {})
    return is_in_memory and fits_threads(program, observed, knob, changed)


def fits_shared(
    program: Program, observed: Observed, kernel_name: str, changed: Mapping[str, int], stages: Mapping[int, int]
) -> bool:
    """Whether loads that run ahead fit shared memory; `stages` has those of loops, by index, that are about to change.
    Kernels with products are left to the compiler, which shares their buffers."""
    kernel = program.kernels.get(kernel_name)
    if kernel is None or program.device_calls(kernel, "dot", "dot_scaled"):
        return True
    tiles = tiles_of(program, observed, kernel_name, changed)
    return shared_bytes(program, kernel, tiles, {**_stages_of(program, kernel), **stages}) <= SHARED_BYTES


def _stages_of(program: Program, kernel: Scope) -> dict[int, int]:
    """The stages of loops, by index, where they are written."""

    def compute() -> dict[int, int]:
        texts = [loop_option(program, loop, "num_stages").text or "" for loop in loops_of(program, kernel)]
        return {i: int(text) for i, text in enumerate(texts) if text.isdigit()}

    return program.derived(("stages", id(kernel)), compute)


def tiles_of(program: Program, observed: Observed, kernel_name: str, changed: Mapping[str, int]) -> dict[str, int]:
    """The extents of a kernel's tiles, those that are known, after a change."""
    kernel = program.kernels[kernel_name]
    known = {k.parameter: current_value(k, observed) for k in kernel_knobs(program, kernel_name)}
    shapes = [name for name, use in tile_uses(program, kernel).items() if use.is_shape]
    values = {n: changed.get(n) or known.get(n) or observed.value(kernel_name, n) for n in shapes}
    return {name: value for name, value in values.items() if value is not None}


def fits_threads(program: Program, observed: Observed, knob: Knob, changed: Mapping[str, int]) -> bool:
    """Whether a thread would hold a sensible number of elements; true where that cannot be told.

    `changed` has the values that parameters of the knob's kernel are about to get.
    """
    kernel = program.kernels.get(knob.kernel)
    if kernel is None:
        return True
    known = {k.parameter: current_value(k, observed) for k in kernel_knobs(program, knob.kernel)}
    shapes = [name for name, use in tile_uses(program, kernel).items() if use.is_shape]
    sizes = sorted(tiles_of(program, observed, kernel.name, changed).values())
    warps = changed.get("num_warps") or known.get("num_warps") or observed.value(kernel.name, "num_warps")
    if warps is None or not sizes or len(sizes) < len(shapes):
        return True
    # a product accumulates a tile of its two larger sides
    elements = math.prod(sizes[-2:] if knob.shape is TileShape.PRODUCT else sizes)
    per_thread = elements / (32 * warps)
    if knob.shape is TileShape.GRID and row_loops(program, kernel):
        is_walk_sized = elements <= MOST_ELEMENTS_OF_WALK and per_thread <= MOST_ELEMENTS_PER_THREAD_OF_WALK
        return is_walk_sized and per_thread >= LEAST_ELEMENTS_PER_THREAD
    return LEAST_ELEMENTS_PER_THREAD <= per_thread <= MOST_ELEMENTS_PER_THREAD
