"""max_registers: fewer registers a thread let more blocks be resident; too few spill."""

from __future__ import annotations

from islands.operators.structural.knobs import KnobKind
from islands.operators.structural.setting import KnobTechnique


class MaxRegisters(KnobTechnique):
    name = "max_registers"
    prior = 0.01
    citation = "maxnreg, https://docs.nvidia.com/cuda/parallel-thread-execution/#performance-tuning-directives-maxnreg"
    kind = KnobKind.REGISTERS
