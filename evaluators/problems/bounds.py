"""Whether an elementwise bound can tell an answer from one that nobody computed, and a tighter one where it cannot.

A table of tolerances knows dtypes, not problems: a softmax over 393,216 columns answers with 3e-6, and zeros are within
1e-3 of it. So the answer is held against wrong ones that need no work. Where one passes, the absolute part shrinks to a
thousandth of the answer's root mean square, though never under what the reference itself loses against float64.

Not told apart, and not held against a problem: an answer that really is constant, or that repeats an input, to within
what float32 or the relative part leaves (`degenerate` labels those).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from db.records import Tolerance
from evaluators.gates.correctness import compare

SHARE = 1e-3  # of the root mean square: the absolute bound where a wider one tells nothing
HEADROOM = 16.0  # times the reference's own error against float64, under which no bound shrinks
NOISE = 2e-3  # beyond the relative bound: what passes at least a thousandth off is not told from what is exact
EXACT = 0.5  # absolute bound for whole numbers


class TooWide(NamedTuple):
    """A bound that lets a wrong answer pass, which answer, and the bound that does not."""

    mutant: str
    tighter: Tolerance


def too_wide(expected: Tensor, inputs: Sequence[Any], bound: Tolerance, error: float = 0.0) -> TooWide | None:
    """Why a bound is too wide for an answer and what it should be; None where it tells wrong answers from it, or where
    no absolute bound could.

    Args:
        error: the reference's largest error against float64, 0 where that is unknown.
    """
    if not expected.numel() or not bool(_floating(expected).isfinite().all()):
        return None
    tighter = Tolerance(rtol=bound.rtol, atol=min(bound.atol, _least(expected, error)))
    if tighter.atol >= bound.atol:
        return None
    for name, wrong in _mutants(expected, inputs, bound):
        if _passes(wrong, expected, bound) and not _passes(wrong, expected, tighter):
            return TooWide(name, tighter)
    return None


def root_mean_square(values: Tensor) -> float:
    """Of all elements, in float32 at least."""
    wide = _floating(values)
    norm = torch.linalg.vector_norm(wide, dtype=torch.promote_types(wide.dtype, torch.float32))
    return float(norm.item()) / math.sqrt(max(1, values.numel()))


def _floating(values: Tensor) -> Tensor:
    """Whole numbers and floats of a byte in float32, others as they are."""
    is_wide = (values.is_floating_point() or values.is_complex()) and values.element_size() > 1
    return values if is_wide else values.float()


def _least(expected: Tensor, error: float) -> float:
    if not expected.is_floating_point() and not expected.is_complex():
        return EXACT
    least = torch.finfo(torch.float32).tiny
    return max(SHARE * root_mean_square(expected), HEADROOM * error, float(least))


def _mutants(expected: Tensor, inputs: Sequence[Any], bound: Tolerance) -> Iterator[tuple[str, Tensor]]:
    """Answers that take no work, by what they are."""
    yield "zeros", torch.zeros_like(expected)
    if expected.is_floating_point() and expected.numel() > 1:
        yield (
            "its mean everywhere",
            torch.full_like(expected, float(_floating(expected).mean(dtype=torch.float64).item())),
        )
    first = next((value for value in inputs if isinstance(value, Tensor)), None)
    if first is not None and first.shape == expected.shape and first.dtype == expected.dtype:
        yield "the first input", first
    if expected.dim() and expected.shape[0] > 1:
        yield "all but one row", _without_a_row(expected)
    if expected.dtype in (torch.float32, torch.float64):
        yield "an answer that is a thousandth off", expected * (1.0 + bound.rtol + NOISE)


def _without_a_row(expected: Tensor) -> Tensor:
    """Zeros in the row of median size among those that are not zero already."""
    rows = _floating(expected.reshape(expected.shape[0], -1))
    sizes = torch.linalg.vector_norm(rows, dim=1, dtype=torch.promote_types(rows.dtype, torch.float32))
    order = sizes.argsort()[int((sizes == 0).sum().item()) :]
    wrong = expected.clone()
    if len(order):
        wrong[int(order[(len(order) - 1) // 2].item())] = 0
    return wrong


def _passes(wrong: Tensor, expected: Tensor, bound: Tolerance) -> bool:
    return compare(wrong, expected, bound) is None
