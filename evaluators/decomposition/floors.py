"""How close a part comes to what memory allows, as the compiler wrote it: a rough figure, known without a profiler."""

from __future__ import annotations

import math

import torch

from evaluators.decomposition.flow import n_elements
from evaluators.decomposition.parts import Part, Tensor


def efficiency_of(part: Part, device_us: float, dram_gb_s: float) -> float:
    """The share of its device time that a part needs to read its inputs and write its outputs once, in [0, 1].

    What its kernels hand to each other is not counted: a part of several kernels need not write it.

    Args:
        device_us: of all its launches, in microseconds.
        dram_gb_s: what a copy reaches.
    """
    n_bytes = sum(map(_bytes, (*part.inputs, *part.outputs)))
    return min(1.0, n_bytes / (dram_gb_s * 1e3) / device_us) if device_us > 0 else 1.0


def _bytes(tensor: Tensor) -> int:
    """Of the elements that lie in memory: one that is repeated does so once."""
    itemsize: int = getattr(torch, tensor.spec.dtype).itemsize
    return min(n_elements(tensor.spec), math.prod(tensor.spec.shape)) * itemsize
