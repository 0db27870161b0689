"""single_exponential: an online softmax takes one exponential an element instead of two."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from islands.operators.structural.analysis import Program, Scope
from islands.operators.structural.exp2 import LOG2_E
from islands.operators.structural.grids import above_kernel, fresh_name
from islands.operators.structural.kernels import helper_calls
from islands.operators.structural.known_functions import body_of, called_function, canonical_body
from islands.operators.structural.technique import Context, Rewrite, Technique
from islands.operators.structural.text import Edit

# torch._inductor.runtime.triton_helpers.online_softmax_combine; the names are those of what it calls
_COMBINE = """
out_max = {maximum}(lhs_max, rhs_max)
lhs_scale = tl.where(out_max == float('-inf'), 1.0, {exp}(lhs_max - out_max, use_fast_math))
rhs_scale = tl.where(out_max == float('-inf'), 1.0, {exp}(rhs_max - out_max, use_fast_math))
out_sum = lhs_sum * lhs_scale + rhs_scale
return out_max, out_sum
"""
_STEP = f"""\
@triton.jit
def {{name}}(lhs_max, lhs_sum, rhs_max, use_fast_math: tl.constexpr):
    is_more = rhs_max > lhs_max
    factor = tl.exp2(-tl.abs(lhs_max - rhs_max) * {LOG2_E})
    factor = tl.where(rhs_max == float("-inf"), 0.0, factor)
    return tl.where(is_more, rhs_max, lhs_max), tl.where(is_more, lhs_sum * factor + 1.0, lhs_sum + factor)


"""


class CombineSite(NamedTuple):
    """The calls of a kernel that take one more value into a running maximum and a sum below it, lane by lane."""

    kernel: str
    calls: tuple[cst.Call, ...]


class SingleExponential(Technique[CombineSite]):
    """Of the two factors exp(max - max') and exp(x - max') one is always 1; the other is exp(-|max - x|)."""

    name = "single_exponential"
    prior = 0.1
    citation = (
        "Milakov and Gimelshein 2018, https://arxiv.org/abs/1805.02867, algorithm 3, with max' one of its operands"
    )

    def sites(self, program: Program) -> list[CombineSite]:
        if program.alias("triton.language") != "tl":
            return []
        kernels = [k for k in program.kernels.values() if program.launches_of(k)]
        found = [CombineSite(k.name, tuple(_combining(program, k))) for k in kernels]
        return [site for site in found if site.calls]

    def rewrite(self, context: Context, site: CombineSite) -> Rewrite | None:
        program = context.program
        name = fresh_name(program, "online_softmax_step")
        edits = [above_kernel(program, program.kernels[site.kernel], _STEP.format(name=name))]
        edits += [Edit(*program.span(call.func), name) for call in site.calls]
        return Rewrite(tuple(edits), f"online softmax of {site.kernel} with one exponential")


def _combining(program: Program, kernel: Scope) -> list[cst.Call]:
    return [c for c in helper_calls(program, kernel) if _is_combine(program, called_function(program, c))]


def _is_combine(program: Program, function: Scope) -> bool:
    """Whether a function is Inductor's, calling whatever its maximum and its exponential are called."""
    called = [program.text(call.func) for call in helper_calls(program, function)]
    if len(called) != 3 or len(function.parameters) != 4:
        return False
    return body_of(program, function) == canonical_body(_COMBINE.format(maximum=called[0], exp=called[1]))
