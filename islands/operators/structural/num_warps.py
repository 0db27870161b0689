"""num_warps: more warps hide latency and share a tile among more registers, fewer synchronise less."""

from __future__ import annotations

from islands.operators.structural.knobs import KnobKind
from islands.operators.structural.setting import KnobTechnique


class NumWarps(KnobTechnique):
    name = "num_warps"
    prior = 0.05
    citation = "triton.Config(num_warps), https://triton-lang.org/main/python-api/generated/triton.Config.html"
    kind = KnobKind.WARPS
