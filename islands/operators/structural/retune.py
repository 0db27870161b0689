"""retune: several knobs at once, because they interact: a large tile wants more warps and fewer stages."""

from __future__ import annotations

import random

from islands.operators.structural.analysis import Program
from islands.operators.structural.choices import current_value, draw_value, matching_warps
from islands.operators.structural.knobs import Knob, KnobKind, TileShape, hint_knobs, knobs_of
from islands.operators.structural.num_stages import pipelines_by_itself
from islands.operators.structural.setting import fits_threads, set_knob
from islands.operators.structural.technique import Context, Observed, Rewrite, Technique

_MOST_KNOBS = 4


class Retune(Technique[str]):
    """Draws two to four of a kernel's knobs; where a row tile is among them, warps are drawn to fit it."""

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
        values = _draw([knobs[i] for i in chosen], observed, rng)
        changed = {knob.parameter: value for knob, value in values}
        if not all(fits_threads(program, observed, knob, changed) for knob, _ in values):
            return None
        rewrites = [set_knob(knob, value, observed) for knob, value in values]
        return Rewrite(tuple(e for r in rewrites for e in r.edits), ", ".join(r.detail for r in rewrites))


def _knobs(program: Program, kernel: str) -> list[Knob]:
    """What interacts in a kernel: warps, tiles, the stages of the launch or of each loop, constants of the host."""
    knobs = [k for k in knobs_of(program) if k.kernel == kernel and k.kind in (KnobKind.WARPS, KnobKind.TILE)]
    if pipelines_by_itself(program, kernel):
        knobs += [k for k in knobs_of(program) if k.kernel == kernel and k.kind is KnobKind.STAGES]
    else:
        knobs += [k for k in hint_knobs(program) if k.kernel == kernel and k.parameter == "num_stages"]
    return knobs + [k for k in knobs_of(program) if k.kind is KnobKind.CONSTANT]


def _draw(knobs: list[Knob], observed: Observed, rng: random.Random) -> list[tuple[Knob, int]]:
    drawn = [(knob, value) for knob in knobs if (value := draw_value(knob, observed, rng)) is not None]
    row_tile = next(
        (v for k, v in drawn if k.kind is KnobKind.TILE and k.shape is TileShape.ROW and k.use and k.use.is_shape), None
    )
    if row_tile is None:
        return drawn
    return [(k, _warps(k, v, row_tile, observed, rng)) for k, v in drawn]


def _warps(knob: Knob, value: int, tile: int, observed: Observed, rng: random.Random) -> int:
    if knob.kind is not KnobKind.WARPS:
        return value
    fitting = matching_warps(tile, rng)
    return value if fitting == current_value(knob, observed) else fitting
