"""Correctness: does the candidate compute what the reference computes, element by element?

Everything here runs in the judge, on tensors that the judge owns; a candidate only ever filled `actual`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from db.records import Tolerance

CHUNK = 1 << 22  # elements compared at a time: the intermediates of a chunk stay in the L2 of a large GPU


class Mismatch(NamedTuple):
    """How far one output is off. `place` is where the error is largest, `nan_mismatch` how many NaNs are misplaced."""

    n_wrong: int
    n_elements: int
    worst_error: float
    place: tuple[int, ...]
    actual: float
    expected: float
    nan_mismatch: int

    def describe(self) -> str:
        """One sentence: how many elements, the largest error, where, and both values there."""
        share = 100 * self.n_wrong / self.n_elements
        text = f"{self.n_wrong} of {self.n_elements} elements ({share:.3g}%) are outside the tolerance"
        if self.nan_mismatch:
            text += f", {self.nan_mismatch} of them NaN where the reference has numbers or the other way round"
        where = ", ".join(str(i) for i in self.place)
        values = f"{self.actual:.6g}, expected {self.expected:.6g}"
        return f"{text}; largest error {self.worst_error:.4g} at ({where}): {values}"


def compare(actual: Tensor, expected: Tensor, tolerance: Tolerance) -> Mismatch | None:
    """None when every element of `actual` is within `atol + rtol * abs(expected)` of `expected`.

    Both tensors have one shape, dtype and device. NaN must stand where the reference has NaN, and an infinity must be
    the same infinity. Floats are compared in float32 (float64 stays), everything else in float64.
    """
    flat_actual, flat_expected = actual.reshape(-1), expected.reshape(-1)
    if flat_actual.numel() == 0:
        return None
    if _is_plainly_close(flat_actual, flat_expected, tolerance):
        return None
    chunks = zip(flat_actual.split(CHUNK), flat_expected.split(CHUNK), strict=True)
    n_wrong = int(torch.stack([_n_wrong(a, e, tolerance) for a, e in chunks]).sum().item())
    return _mismatch(flat_actual, flat_expected, tolerance, n_wrong, tuple(expected.shape)) if n_wrong else None


def _is_plainly_close(actual: Tensor, expected: Tensor, tolerance: Tolerance) -> bool:
    """Whether all is finite and within the bound, in a third of the passes; what is not has to be looked at closely."""
    excess = []
    for a_raw, e_raw in zip(actual.split(CHUNK), expected.split(CHUNK), strict=True):
        a, e = _comparable(a_raw), _comparable(e_raw)
        excess.append((a - e).abs_().sub_(e.abs(), alpha=tolerance.rtol).max())
    # a NaN or an infinity anywhere makes this false
    return bool((torch.stack(excess) <= tolerance.atol).all().item())


def _n_wrong(actual: Tensor, expected: Tensor, tolerance: Tolerance) -> Tensor:
    return _is_wrong(_comparable(actual), _comparable(expected), tolerance).count_nonzero()


def _comparable(values: Tensor) -> Tensor:
    if values.is_complex():
        return torch.view_as_real(values).reshape(-1)
    if values.is_floating_point():
        return values if values.dtype == torch.float64 else values.float()
    return values.double()


def _is_wrong(actual: Tensor, expected: Tensor, tolerance: Tolerance) -> Tensor:
    bound = expected.abs().mul_(tolerance.rtol).add_(tolerance.atol)
    within = (actual - expected).abs_() <= bound
    # an infinite bound or difference says nothing: there, only the same value will do
    within &= expected.isfinite()
    within |= actual == expected
    within |= actual.isnan() & expected.isnan()
    return within.logical_not_()


def _mismatch(actual: Tensor, expected: Tensor, tolerance: Tolerance, n_wrong: int, shape: tuple[int, ...]) -> Mismatch:
    worst, place, nan_mismatch, offset = -1.0, 0, 0, 0
    for a_raw, e_raw in zip(actual.split(CHUNK), expected.split(CHUNK), strict=True):
        a, e = _comparable(a_raw), _comparable(e_raw)
        wrong = _is_wrong(a, e, tolerance)
        error = torch.where(wrong, (a - e).abs().nan_to_num(math.inf, math.inf, math.inf), -1.0)
        largest, index = error.max(dim=0)
        if largest.item() > worst:
            worst, place = largest.item(), offset + int(index.item())
        nan_mismatch += int((a.isnan() != e.isnan()).count_nonzero().item())
        offset += a.numel()
    n_elements, is_complex = actual.numel(), actual.is_complex()
    element = place // 2 if is_complex else place
    part = place % 2 if is_complex else 0
    got, wanted = (float(_comparable(t[element : element + 1])[part].item()) for t in (actual, expected))
    index = tuple(_unravel(element, shape))
    return Mismatch(min(n_wrong, n_elements), n_elements, worst, index, got, wanted, nan_mismatch)


def _unravel(place: int, shape: tuple[int, ...]) -> list[int]:
    index: list[int] = []
    for size in reversed(shape):
        index.append(place % size)
        place //= size
    return index[::-1]
