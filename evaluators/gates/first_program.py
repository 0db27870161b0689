"""First programs: one that was made from scratch has no parent that was right, so it is held to more.

On every input set of the model gate (seeds 0, 42 and 123) each output has to be within 1e-4 of the reference, or, where
a dtype cannot say so, within two units in its last place; never wider than the problem's own tolerance. An output that
is further away passes if float64 says that it is as exact as the reference (see `model_gate`). Where the reference
cannot run in float64 nothing excuses it. Integers are exact already, or their tolerance is part of what is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from db.records import Gate, GateResult, Tolerance
from evaluators.gates.correctness import Mismatch, compare

BOUND = 1e-4
UNITS_IN_LAST_PLACE = 2.0


class Look(NamedTuple):
    """One output of one input set. `mismatch` is None where it is within the closer bound."""

    mismatch: Mismatch | None
    bound: Tolerance
    has_exact: bool  # whether the model gate compared it with float64
    label: str  # which output of which input set


def closer_bound(dtype: torch.dtype, own: Tolerance) -> Tolerance:
    """What an output of a first program is held to, where `own` is what every program is held to."""
    rtol = max(BOUND, UNITS_IN_LAST_PLACE * torch.finfo(dtype).eps)
    return Tolerance(rtol=min(own.rtol, rtol), atol=min(own.atol, BOUND))


def look_at(
    outputs: Sequence[Tensor],
    expected: Sequence[Tensor],
    tolerances: Sequence[Tolerance],
    exact: Sequence[Tensor | None],
    label: str,
) -> list[Look]:
    """Looks at the outputs of one input set that are not whole numbers; `exact` is the reference in float64."""
    looks = []
    for i, (output, wanted, own, in_float64) in enumerate(zip(outputs, expected, tolerances, exact, strict=True)):
        if wanted.is_floating_point() or wanted.is_complex():
            bound = closer_bound(wanted.dtype, own)
            name = f"output {i}, {label}" if len(expected) > 1 else label
            looks.append(Look(compare(output, wanted, bound), bound, in_float64 is not None, name))
    return looks


def held_to_more(answer: GateResult, looks: Sequence[Look]) -> GateResult:
    """The model gate's answer on a first program: a yes says by which rule, or becomes a no."""
    if not answer.passed:
        return answer
    for look in looks:
        if look.mismatch is not None and not look.has_exact:
            return GateResult(
                gate=Gate.MODEL,
                passed=False,
                reason=_reason(look, look.mismatch),
                evidence=look.mismatch._asdict(),
            )
    n_within = sum(look.mismatch is None for look in looks)
    rule = {"bound": BOUND, "n_within": n_within, "n_as_exact_as_the_reference": len(looks) - n_within}
    return answer.model_copy(update={"evidence": {**answer.evidence, "first_program": rule}})


def _reason(look: Look, mismatch: Mismatch) -> str:
    rtol, atol = look.bound.rtol, look.bound.atol
    return (
        f"a first program must be within rtol {rtol:.3g} and atol {atol:.3g} of the reference, which cannot run in "
        f"float64 to say that it is as exact all the same: {mismatch.describe()} ({look.label})"
    )
