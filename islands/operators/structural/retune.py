"""retune: several knobs at once, because they interact: a large tile wants more warps and fewer stages."""

from __future__ import annotations

import math
import random

from islands.operators.structural.analysis import Program
from islands.operators.structural.choices import current_value, draw_value, matching_warps
from islands.operators.structural.knobs import Knob, KnobKind, TileShape, hint_knobs, kernel_knobs, knobs_of
from islands.operators.structural.num_stages import pipelines_by_itself
from islands.operators.structural.row_loops import row_loops
from islands.operators.structural.setting import fits, fits_shared, set_knob, tiles_of
from islands.operators.structural.technique import Context, Observed, Rewrite, Technique

_MOST_KNOBS = 4


class Retune(Technique[str]):
    """Draws two to four of a kernel's knobs; where a tile of rows is among them, warps are drawn to fit it."""

    name = "retune"
    prior = 0.1
    citation = "joint search of tile and warps: van Werkhoven 2019, https://doi.org/10.1016/j.future.2018.08.004"

    def sites(self, program: Program) -> list[str]:
        """Kernels with a tile or with rows, and so with something that interacts."""
        kernels = dict.fromkeys(k.kernel for k in knobs_of(program) if k.kind is KnobKind.TILE)
        return list(kernels) or list(dict.fromkeys(k.kernel for k in knobs_of(program) if k.kind is KnobKind.WARPS))

    def kernel_of(self, site: str) -> str:
        return site

    def rewrite(self, context: Context, site: str) -> Rewrite | None:
        program, observed, rng = context
        knobs = _knobs(program, site)
        if len(knobs) < 2:
            return None
        chosen = sorted(rng.sample(range(len(knobs)), rng.randint(2, min(_MOST_KNOBS, len(knobs)))))
        values = _draw(context, site, [knobs[i] for i in chosen])
        if not _suits(context, site, values):
            return None
        rewrites = [set_knob(knob, value, observed) for knob, value in values]
        return Rewrite(tuple(e for r in rewrites for e in r.edits), ", ".join(r.detail for r in rewrites))


def _knobs(program: Program, kernel: str) -> list[Knob]:
    """What interacts in a kernel: warps, tiles, the stages of the launch or of each loop, constants of the host."""

    def compute() -> list[Knob]:
        own = kernel_knobs(program, kernel)
        knobs = [k for k in own if k.kind in (KnobKind.WARPS, KnobKind.TILE)]
        if pipelines_by_itself(program, kernel):
            knobs += [k for k in own if k.kind is KnobKind.STAGES]
        else:
            knobs += [k for k in hint_knobs(program) if k.kernel == kernel and k.parameter == "num_stages"]
        return knobs + [k for k in knobs_of(program) if k.kind is KnobKind.CONSTANT]

    return program.derived(("interacting", kernel), compute)


def _suits(context: Context, kernel: str, values: list[tuple[Knob, int]]) -> bool:
    """Whether threads, rows and shared memory can hold what was drawn."""
    program, observed, _ = context
    changed = {k.parameter: v for k, v in values if k.kind in (KnobKind.WARPS, KnobKind.TILE)}
    stages = {int(k.key.split("/loop")[-1].partition("/")[0]): v for k, v in values if k.kind is KnobKind.LOOP}
    is_in_memory = fits_shared(program, observed, kernel, changed, stages)
    by_shape = {knob.shape: knob for knob, _ in values if knob.kernel == kernel}  # what else a knob is does not matter
    return is_in_memory and all(fits(program, observed, knob, changed) for knob in by_shape.values())


def _draw(context: Context, kernel: str, knobs: list[Knob]) -> list[tuple[Knob, int]]:
    program, observed, rng = context
    drawn = [(knob, value) for knob in knobs if (value := draw_value(knob, observed, rng)) is not None]
    elements = _elements(program, observed, kernel, drawn)
    if elements is None:
        return drawn
    return [(k, _warps(k, v, elements, observed, rng)) for k, v in drawn]


def _elements(program: Program, observed: Observed, kernel: str, drawn: list[tuple[Knob, int]]) -> int | None:
    """The elements of a tile that was drawn, if it is one of rows; all that threads share if it has two dimensions."""
    tiles = {k.parameter: v for k, v in drawn if k.kind is KnobKind.TILE and k.use and k.use.is_shape}
    shapes = {k.shape for k, _ in drawn if k.parameter in tiles}
    if shapes == {TileShape.ROW}:
        return next(iter(tiles.values()))
    if shapes == {TileShape.GRID} and row_loops(program, program.kernels[kernel]):
        return math.prod(tiles_of(program, observed, kernel, tiles).values())
    return None


def _warps(knob: Knob, value: int, tile: int, observed: Observed, rng: random.Random) -> int:
    if knob.kind is not KnobKind.WARPS:
        return value
    fitting = matching_warps(tile, rng)
    return value if fitting == current_value(knob, observed) else fitting
