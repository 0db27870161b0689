"""The base of techniques that set one knob to another value."""

from __future__ import annotations

from islands.operators.structural.analysis import Program
from islands.operators.structural.choices import current_value, draw_value
from islands.operators.structural.knobs import Knob, KnobKind, knobs_of
from islands.operators.structural.technique import Context, Observed, Rewrite, Technique


class KnobTechnique(Technique[Knob]):
    """Sets one knob of one kind to another value."""

    kind: KnobKind

    def sites(self, program: Program) -> list[Knob]:
        return [k for k in knobs_of(program) if k.kind is self.kind]

    def rewrite(self, context: Context, site: Knob) -> Rewrite | None:
        value = draw_value(site, context.observed, context.rng)
        return None if value is None else set_knob(site, value, context.observed)


def set_knob(knob: Knob, value: int, observed: Observed) -> Rewrite:
    """The edits that give a knob a value, with "BLOCK of softmax_kernel 1024 -> 4096" as the detail."""
    before = current_value(knob, observed)
    owner = f" of {knob.kernel}" if knob.kernel else ""
    shown = knob.text if before is None else before
    return Rewrite(knob.place.set(str(value)), f"{knob.parameter}{owner} {shown or 'unset'} -> {value}")
