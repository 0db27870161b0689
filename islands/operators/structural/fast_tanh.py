"""fast_tanh: a hyperbolic tangent without branches, so that the values of a thread are computed side by side."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from islands.operators.structural.analysis import Program
from islands.operators.structural.exp2 import LOG2_E
from islands.operators.structural.grids import above_kernel, fresh_name
from islands.operators.structural.technique import Context, Rewrite, Technique
from islands.operators.structural.text import Edit

_FUNCTIONS = ("extra.libdevice.tanh", "extra.cuda.libdevice.tanh")  # by either import
_BY_POWER = f"""\
@triton.jit
def {{name}}(x):
    return 1.0 - 2.0 / (tl.exp2(x * {2 * float(LOG2_E)}) + 1.0)


"""
# below 1/4 the first four terms of the series, whose error is below one unit in the last place
_WITH_SERIES = f"""\
@triton.jit
def {{name}}(x):
    square = x * x
    series = x + x * square * (-0.33333334 + square * (0.13333334 + square * (-0.053968254 + square * 0.021869488)))
    return tl.where(tl.abs(x) < 0.25, series, 1.0 - 2.0 / (tl.exp2(x * {2 * float(LOG2_E)}) + 1.0))


"""


class TanhSite(NamedTuple):
    """The calls of one kernel, rewritten together."""

    kernel: str
    calls: tuple[cst.Call, ...]


class FastTanh(Technique[TanhSite]):
    """tanh(x) = 1 - 2 / (exp2(2 log2(e) x) + 1), and near zero that or its series: `libdevice` branches between two."""

    name = "fast_tanh"
    prior = 0.03
    citation = "ex2.approx, https://docs.nvidia.com/cuda/parallel-thread-execution/#floating-point-instructions-ex2"

    def sites(self, program: Program) -> list[TanhSite]:
        if program.alias("triton.language") != "tl":
            return []
        found = [TanhSite(n, tuple(program.device_calls(k, *_FUNCTIONS))) for n, k in program.kernels.items()]
        return [site for site in found if site.calls]

    def rewrite(self, context: Context, site: TanhSite) -> Rewrite | None:
        program = context.program
        has_series = context.rng.random() < 0.5
        name = fresh_name(program, "fast_tanh")
        text = (_WITH_SERIES if has_series else _BY_POWER).format(name=name)
        edits = [above_kernel(program, program.kernels[site.kernel], text)]
        edits += [Edit(*program.span(call.func), name) for call in site.calls]
        said = "by a power or a series" if has_series else "by a power"
        return Rewrite(tuple(edits), f"tanh of {site.kernel} {said}")
