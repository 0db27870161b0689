"""num_stages: how many iterations of a loop have their loads in flight at once."""

from __future__ import annotations

from islands.operators.structural.analysis import Program
from islands.operators.structural.kernels import loops_of
from islands.operators.structural.knobs import Knob, KnobKind
from islands.operators.structural.setting import KnobTechnique


class NumStages(KnobTechnique):
    """Applies to kernels with a loop around `tl.dot`: only there Triton pipelines loads by itself. Other loops get
    their stages from `loop_pipeline`."""

    name = "num_stages"
    prior = 0.02
    citation = "software pipelining, https://triton-lang.org/main/python-api/generated/triton.Config.html"
    kind = KnobKind.STAGES

    def sites(self, program: Program) -> list[Knob]:
        return [k for k in super().sites(program) if pipelines_by_itself(program, k.kernel)]


def pipelines_by_itself(program: Program, kernel: str) -> bool:
    """Whether the launch's `num_stages` reaches a loop of a kernel; true for kernels whose source is elsewhere."""
    scope = program.kernels.get(kernel)
    if scope is None:
        return True
    has_loop = any(loop.kind != "tl.static_range" for loop in loops_of(program, scope))
    return has_loop and bool(program.device_calls(scope, "dot", "dot_scaled"))
