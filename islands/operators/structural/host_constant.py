"""host_constant: integers that the host code fixes, such as rows a program or groups a launch."""

from __future__ import annotations

from islands.operators.structural.knobs import KnobKind
from islands.operators.structural.setting import KnobTechnique


class HostConstant(KnobTechnique):
    """Upper-case integer constants of the module, and integer defaults of the entry."""

    name = "host_constant"
    prior = 0.03
    citation = "auto-tuning of free parameters: Ansel et al. 2014, OpenTuner, https://doi.org/10.1145/2628071.2628092"
    kind = KnobKind.CONSTANT
