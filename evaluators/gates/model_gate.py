"""Model gate: is the candidate as exact as the reference, measured against float64?

With r64 the reference in float64, r32 the reference, o32 the candidate: d_ref = max|r32 - r64|, d_opt = max|o32 - r64|.
A program is of class `reference` while its error is at most 10 times the reference's own; where the reference is exact
to 1e-8, while its error is at most 1e-4 of the largest value. It is `relaxed` when only the absolute bound
max(5e-3, 1e-3 max|r32|) holds, and refused when none does.

In the ratio d_ref counts as at least half the spacing of the dtype at max|r32|: a loss that is one number may meet the
float64 value by luck, and no other program can be asked to hit the same rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from db.records import Gate, GateResult, PrecisionClass

CHUNK = 1 << 23
MAX_RATIO = 10.0
EXACT_BELOW = 1e-8
RELATIVE_BOUND = 1e-4
ABSOLUTE_BOUND = 5e-3
ABSOLUTE_SHARE = 1e-3


class ReferenceError64(NamedTuple):
    """What is known of one output before any candidate: max|r32 - r64|, max|r32|, and the dtype's spacing there."""

    d_ref: float
    largest: float
    spacing: float = 0.0


class Exactness(NamedTuple):
    """How exact a candidate's output is. `ratio` is d_opt / d_ref, or None where d_ref is below 1e-8."""

    d_opt: float
    ratio: float | None
    precision: PrecisionClass | None  # None: refused


def max_abs_error(values: Tensor, exact: Tensor) -> float:
    """max|values - exact| in float64 over the elements where `exact` is finite; 0 when there is none."""
    if not exact.numel():
        return 0.0
    largest = values.new_zeros((), dtype=exact.dtype)
    for v, e in zip(values.reshape(-1).split(CHUNK), exact.reshape(-1).split(CHUNK), strict=True):
        error = (v.to(exact.dtype) - e).abs_().nan_to_num_(0.0, 0.0, 0.0)
        largest = largest.maximum(error.max())
    return float(largest.item())


def reference_error(reference: Tensor, exact: Tensor) -> ReferenceError64:
    """The reference's own error against float64, and its largest finite value."""
    largest = reference.abs().double().nan_to_num(0.0, 0.0, 0.0)
    value = float(largest.max().item()) if reference.numel() else 0.0
    return ReferenceError64(max_abs_error(reference, exact), value, torch.finfo(reference.dtype).eps * value)


def exactness(d_opt: float, reference: ReferenceError64) -> Exactness:
    """The class of a candidate whose error against float64 is `d_opt`."""
    d_ref, largest, spacing = reference
    if d_ref >= EXACT_BELOW:
        ratio = d_opt / max(d_ref, spacing / 2)
        if ratio <= MAX_RATIO:
            return Exactness(d_opt, ratio, PrecisionClass.REFERENCE)
    else:
        ratio = None
        if d_opt / max(largest, 1e-12) <= RELATIVE_BOUND:
            return Exactness(d_opt, ratio, PrecisionClass.REFERENCE)
    is_relaxed = d_opt <= max(ABSOLUTE_BOUND, ABSOLUTE_SHARE * largest)
    return Exactness(d_opt, ratio, PrecisionClass.RELAXED if is_relaxed else None)


def model_gate(found: list[Exactness], wanted: PrecisionClass) -> tuple[GateResult, float | None]:
    """The gate's answer over all outputs that were compared with float64, and the error ratio (the largest).

    An empty list (no float64 reference) passes: then the elementwise comparison alone decided.
    """
    ratios = [e.ratio for e in found if e.ratio is not None]
    ratio = max(ratios) if ratios else None
    if any(e.precision is None for e in found):
        worst = max(e.d_opt for e in found)
        reason = f"error {worst:.3g} against float64 exceeds every bound of the model gate{_times(ratio)}"
        return GateResult(gate=Gate.MODEL, passed=False, reason=reason), ratio
    is_relaxed = any(e.precision is PrecisionClass.RELAXED for e in found)
    if is_relaxed and wanted is PrecisionClass.REFERENCE:
        reason = f"less exact than the reference{_times(ratio)}: precision class relaxed, this run asks for reference"
        return GateResult(gate=Gate.MODEL, passed=False, reason=reason), ratio
    precision = PrecisionClass.RELAXED if is_relaxed else PrecisionClass.REFERENCE
    evidence = {"error_ratio": ratio, "precision": precision.value, "n_outputs": len(found)}
    return GateResult(gate=Gate.MODEL, passed=True, evidence=evidence), ratio


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f" ({ratio:.3g} times the reference's own error, at most {MAX_RATIO:.0f})"
