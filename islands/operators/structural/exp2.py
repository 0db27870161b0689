"""exp2: the hardware computes powers and logarithms to base 2; the factor then folds into what is around it."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from islands.operators.structural.analysis import Program
from islands.operators.structural.technique import Context, Rewrite, Technique
from islands.operators.structural.text import Edit

LOG2_E = "1.4426950408889634"
LN_2 = "0.6931471805599453"
_FUNCTIONS = ("exp", "log", "math.exp", "math.log", "extra.libdevice.exp", "extra.libdevice.log")


class CallSite(NamedTuple):
    """Calls of one kernel that are rewritten together."""

    kernel: str
    calls: tuple[cst.Call, ...]


class Exp2(Technique[CallSite]):
    """exp(x) = exp2(x * log2(e)), log(x) = log2(x) * ln(2): one call, or all of a kernel."""

    name = "exp2"
    prior = 0.01
    citation = "ex2.approx; Dao 2023, FlashAttention-2, https://arxiv.org/abs/2307.08691"

    def sites(self, program: Program) -> list[CallSite]:
        sites: list[CallSite] = []
        if not program.alias("triton.language"):
            return sites
        for name, kernel in program.kernels.items():
            calls = [c for c in program.device_calls(kernel, *_FUNCTIONS) if len(c.args) == 1]
            sites += [CallSite(name, (call,)) for call in calls]
            if len(calls) > 1:
                sites.append(CallSite(name, tuple(calls)))
        return sites

    def rewrite(self, context: Context, site: CallSite) -> Rewrite | None:
        edits = [edit for call in site.calls for edit in _to_base_2(context.program, call)]
        return Rewrite(tuple(edits), f"{len(site.calls)} of exp and log to base 2 in {site.kernel}")


def _to_base_2(program: Program, call: cst.Call) -> tuple[Edit, ...]:
    """Insertions around the argument, so that a call inside it can be rewritten too."""
    device = program.alias("triton.language")
    name, whole, inner = program.span(call.func), program.span(call), program.span(call.args[0])
    if program.device_call(call).endswith("exp"):
        function = Edit(name.start, name.end, f"{device}.exp2")
        return function, Edit(inner.start, inner.start, "("), Edit(inner.end, inner.end, f") * {LOG2_E}")
    function = Edit(name.start, name.end, f"({device}.log2")
    return function, Edit(whole.end, whole.end, f" * {LN_2})")
