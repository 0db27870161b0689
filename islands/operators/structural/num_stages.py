"""num_stages: how many iterations of a loop have their loads in flight at once."""

from __future__ import annotations

from islands.operators.structural.analysis import Program
from islands.operators.structural.kernels import loops_of
from islands.operators.structural.knobs import Knob, KnobKind
from islands.operators.structural.setting import KnobTechnique


class NumStages(KnobTechnique):
    """Applies to kernels with a loop that is not unrolled: elsewhere there is nothing to pipeline."""

    name = "num_stages"
    citation = "software pipelining, https://triton-lang.org/main/python-api/generated/triton.Config.html"
    kind = KnobKind.STAGES

    def sites(self, program: Program) -> list[Knob]:
        return [k for k in super().sites(program) if _has_loop(program, k.kernel)]


def _has_loop(program: Program, kernel: str) -> bool:
    scope = program.kernels.get(kernel)
    return scope is None or any(loop.kind != "tl.static_range" for loop in loops_of(program, scope))
