"""precision: how tensor cores multiply float32: three TF32 products, or no tensor core at all."""

from __future__ import annotations

from islands.operators.structural.analysis import Program
from islands.operators.structural.knobs import Knob, hint_knobs
from islands.operators.structural.technique import Context, Rewrite, Technique

REFERENCE_CLASS = ("tf32x3", "ieee")
RELAXED_CLASS = ("tf32",)


class Precision(Technique[Knob]):
    """By default only modes whose error is that of float32; `relaxed` adds plain TF32."""

    name = "precision"
    prior = 0.01
    citation = "tl.dot(input_precision); Ootomo and Yokota 2022, https://doi.org/10.1177/10943420221090256"

    def __init__(self, relaxed: bool = False) -> None:
        self._modes = REFERENCE_CLASS + (RELAXED_CLASS if relaxed else ())

    def sites(self, program: Program) -> list[Knob]:
        return [k for k in hint_knobs(program) if k.parameter == "input_precision"]

    def rewrite(self, context: Context, site: Knob) -> Rewrite | None:
        mode = f'"{context.rng.choice(self._modes)}"'
        return Rewrite(site.place.set(mode), f"{site.key} {site.text or 'unset'} -> {mode}")
