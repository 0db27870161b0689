"""How an input lies in memory where its problem lets that vary: the same values, other strides or another alignment."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

Layout = Literal["plain", "transposed", "unaligned"]


def laid_out(value: Any, layout: Layout) -> Any:
    """The value in a layout. What is no tensor, and a tensor with gaps or repeated elements, stays as it is."""
    if not isinstance(value, Tensor) or layout == "plain" or not value.numel():
        return value
    return _transposed(value) if layout == "transposed" else _unaligned(value)


def _transposed(value: Tensor) -> Tensor:
    """The last two dimensions in the other order in memory; fewer than two have no order."""
    if value.dim() < 2:
        return value
    return value.transpose(-1, -2).contiguous().transpose(-1, -2)


def _unaligned(value: Tensor) -> Tensor:
    """One element behind the begin of an allocation, with the strides that it has."""
    n_spanned = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    if n_spanned != value.numel():
        return value
    memory = torch.empty(n_spanned + 1, dtype=value.dtype, device=value.device)
    moved = memory.as_strided(value.shape, value.stride(), 1)
    moved.copy_(value)
    return moved
