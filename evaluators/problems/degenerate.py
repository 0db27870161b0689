"""Degenerate problems: those whose answer hardly depends on the work, so that a speed-up over them says little.

Told from what the reference really answers, never from its name. KernelBench holds a few such problems (a mean over
what was normalised, an activation that its input never reaches); results are shown with and without them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from db.errors import ProblemError
from evaluators.problems.reference import Reference
from evaluators.problems.variants import Variant

SAME = 1e-3  # of the larger magnitude, as float32 is compared
NOTHING = 1e-6  # what float32 leaves of sums that cancel: values that differ by less are the same
AWAY = 0.1  # of the largest magnitude: values of one sign that stay above are small, and no such remains

_SEEDS = (0, 1)
_VARIANTS: tuple[Variant, ...] = ("flipped", "scaled")


def degeneracy_of(reference: Reference, device: str) -> str:
    """Why the problem is degenerate at its workload, or the empty string. Runs the reference up to four times.

    A loss over many elements is much the same on any draw, and still asks for all of the work: an answer counts as not
    following its inputs only where sign-flipped and scaled ones, which the judge shows as well, do not change it.

    Args:
        device: "cpu", "cuda".

    Raises:
        ProblemError: the reference fails.
        DeviceError: two of its answers do not fit in memory.
        torch.OutOfMemoryError: they do, and what they are compared with does not.
    """
    inputs = reference.draw_inputs(_SEEDS[0], device)
    outputs = reference.expected(inputs)
    if reason := degeneracy(inputs, outputs):
        return reason
    if not any(isinstance(value, Tensor) for value in inputs):
        return "it takes no tensor, so that its answer is always the same"
    n_same = 0
    for others in _other_answers(reference, inputs, device):
        if not is_unchanged(outputs, others):
            return ""
        n_same += 1
    return "its outputs do not follow its inputs" if n_same else ""


def degeneracy(inputs: Sequence[Any], outputs: Sequence[Tensor]) -> str:
    """Why one answer is degenerate, or the empty string: nothing, constants, or an input over again.

    Several outputs are degenerate where each of them is. Of a single number one answer says little: see
    `degeneracy_of`.
    """
    reasons = [_reason(output, inputs) for output in outputs] or ["it answers with no tensor"]
    return reasons[0] if all(reasons) else ""


def is_unchanged(outputs: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Whether two answers are the same within the tolerance."""
    pairs = zip(outputs, others, strict=True)
    return all(one.shape == other.shape and _is_close(one, other) for one, other in pairs)


def _other_answers(reference: Reference, inputs: Sequence[Any], device: str) -> Iterator[list[Tensor]]:
    """What the reference makes of other inputs, as the judge shows them: drawn again, then sign-flipped and scaled
    where it stays finite."""
    others = reference.draw_inputs(_SEEDS[1], device)
    if _differ(inputs, others):  # else get_inputs draws nothing
        yield reference.expected(others)
    for variant in _VARIANTS:
        others = reference.draw_inputs(_SEEDS[0], device, variant)
        try:
            answers = reference.expected(others) if _differ(inputs, others) else []
        except ProblemError:  # a reference need not take inputs of another sign or size
            continue
        if answers and all(bool(answer.isfinite().all()) for answer in answers):
            yield answers


def _reason(output: Tensor, inputs: Sequence[Any]) -> str:
    if not output.numel():
        return "an output is empty"
    if not output.isfinite().any():
        return "an output holds no finite number"
    if output.numel() > 1 and _is_constant(output):
        return "an output is constant"
    for index, value in enumerate(inputs):
        if isinstance(value, Tensor) and value.numel() == output.numel() and value.dtype == output.dtype:
            if value.shape == output.shape and _is_close(value, output):
                return f"an output repeats input {index}"
            if _is_close(value.reshape(-1), output.reshape(-1)):
                return f"an output repeats input {index} in another shape"
    return ""


def _is_constant(values: Tensor) -> bool:
    low, high = _bounds(values)
    return math.isfinite(high - low) and high - low <= _tolerance(low, high)


def _is_close(one: Tensor, other: Tensor) -> bool:
    """Whether no element differs by more than the tolerance; NaN is never close."""
    if not one.numel():
        return True
    (low, high), (other_low, other_high) = _bounds(one), _bounds(other)
    most = float((_real(one) - _real(other)).abs_().max())
    return math.isfinite(most) and most <= _tolerance(min(low, other_low), max(high, other_high))


def _bounds(values: Tensor) -> tuple[float, float]:
    low, high = torch.aminmax(_real(values))
    return float(low), float(high)


def _tolerance(low: float, high: float) -> float:
    """How far values between these bounds may differ and still be the same."""
    largest = max(abs(low), abs(high))
    are_away = low > AWAY * largest or high < -AWAY * largest
    return SAME * largest if are_away else max(NOTHING, SAME * largest)


def _real(values: Tensor) -> Tensor:
    """Values that can be subtracted and compared."""
    values = torch.view_as_real(values) if values.is_complex() else values
    return values if values.is_floating_point() else values.to(torch.float64)


def _differ(inputs: Sequence[Any], others: Sequence[Any]) -> bool:
    pairs = zip(inputs, others, strict=True)
    return any(isinstance(one, Tensor) and not torch.equal(one, other) for one, other in pairs)
