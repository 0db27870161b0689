"""Setting knobs: the base of techniques that set one, and what any setting must respect."""

from __future__ import annotations

import math
from collections.abc import Mapping

from islands.operators.structural.analysis import Program
from islands.operators.structural.choices import current_value, draw_value
from islands.operators.structural.kernels import tile_uses
from islands.operators.structural.knobs import Knob, KnobKind, TileShape, knobs_of
from islands.operators.structural.technique import Context, Observed, Rewrite, Technique

# a thread that holds more elements of one tile spills and compiles for many seconds; with less than half an element
# most threads only repeat what others do
MOST_ELEMENTS_PER_THREAD = 256
LEAST_ELEMENTS_PER_THREAD = 0.5


class KnobTechnique(Technique[Knob]):
    """Sets one knob of one kind to another value."""

    kind: KnobKind

    def sites(self, program: Program) -> list[Knob]:
        return [k for k in knobs_of(program) if k.kind is self.kind]

    def rewrite(self, context: Context, site: Knob) -> Rewrite | None:
        value = draw_value(site, context.observed, context.rng)
        if value is None or not fits_threads(context.program, context.observed, site, {site.parameter: value}):
            return None
        return set_knob(site, value, context.observed)


def set_knob(knob: Knob, value: int, observed: Observed) -> Rewrite:
    """The edits that give a knob a value, with "BLOCK of softmax_kernel 1024 -> 4096" as the detail."""
    before = current_value(knob, observed)
    owner = f" of {knob.kernel}" if knob.kernel else ""
    shown = knob.text if before is None else before
    return Rewrite(knob.place.set(str(value)), f"{knob.parameter}{owner} {shown or 'unset'} -> {value}")


def fits_threads(program: Program, observed: Observed, knob: Knob, changed: Mapping[str, int]) -> bool:
    """Whether a thread would hold a sensible number of elements; true where that cannot be told.

    `changed` has the values that parameters of the knob's kernel are about to get.
    """
    kernel = program.kernels.get(knob.kernel)
    if kernel is None:
        return True
    known = {k.parameter: current_value(k, observed) for k in knobs_of(program) if k.kernel == knob.kernel}
    shapes = [name for name, use in tile_uses(program, kernel).items() if use.is_shape]
    values = [changed.get(n) or known.get(n) or observed.value(kernel.name, n) for n in shapes]
    sizes = sorted(v for v in values if v is not None)
    warps = changed.get("num_warps") or known.get("num_warps") or observed.value(kernel.name, "num_warps")
    if warps is None or not sizes or len(sizes) < len(shapes):
        return True
    # a product accumulates a tile of its two larger sides
    per_thread = math.prod(sizes[-2:] if knob.shape is TileShape.PRODUCT else sizes) / (32 * warps)
    return LEAST_ELEMENTS_PER_THREAD <= per_thread <= MOST_ELEMENTS_PER_THREAD
