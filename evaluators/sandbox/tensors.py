"""CPU tensors that judge and child share through anonymous memory: no copy, and no pickle.

Sealed against shrinking, because a child that truncated it would crash the judge at its next read.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os

import torch

from db.records import TensorSpec

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """Shape, dtype and strides of a tensor."""
    return TensorSpec(
        shape=tuple(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."), strides=tuple(tensor.stride())
    )


def dtype_of(spec: TensorSpec) -> torch.dtype:
    """The torch dtype that a spec names.

    Raises:
        ValueError: torch has no such dtype.
    """
    dtype = getattr(torch, spec.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"unknown dtype {spec.dtype!r}")
    return dtype


def share(tensor: torch.Tensor) -> tuple[int, TensorSpec]:
    """Copy a tensor into new shared memory, strides kept. The caller closes the descriptor."""
    spec = spec_of(tensor)
    source = tensor.detach().cpu()
    fd = allocate(spec)
    span = (n_elements_spanned(spec),)
    if span[0]:
        _map(fd, dtype_of(spec), span[0]).copy_(source.as_strided(span, (1,), source.storage_offset()))
    return fd, spec


def allocate(spec: TensorSpec) -> int:
    """New shared memory of the size of a tensor, zero-filled. The caller closes the descriptor."""
    n_bytes = max(1, n_elements_spanned(spec) * dtype_of(spec).itemsize)
    fd = os.memfd_create("tensor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, n_bytes)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


def open_shared(fd: int, spec: TensorSpec) -> torch.Tensor:
    """The tensor in shared memory, for reading and writing. It keeps the mapping; the descriptor may be closed."""
    n_elements = n_elements_spanned(spec)
    dtype = dtype_of(spec)
    strides = spec.strides or contiguous_strides(spec.shape)
    flat = _map(fd, dtype, n_elements) if n_elements else torch.empty(0, dtype=dtype)
    return flat.as_strided(spec.shape, strides)


def poison(tensor: torch.Tensor) -> None:
    """Fill with what no honest result is: NaN, or 0xA5 in every byte of an integer."""
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.fill_(math.nan)
    elif tensor.dtype is not torch.bool:
        tensor.view(torch.uint8).fill_(0xA5)


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, in elements, of a row-major tensor."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def n_elements_spanned(spec: TensorSpec) -> int:
    """Elements between the first and the last of a tensor in memory, both included; 0 for an empty tensor."""
    if 0 in spec.shape:
        return 0
    strides = spec.strides or contiguous_strides(spec.shape)
    return 1 + sum((size - 1) * stride for size, stride in zip(spec.shape, strides, strict=True))


def _map(fd: int, dtype: torch.dtype, n_elements: int) -> torch.Tensor:
    memory = mmap.mmap(fd, n_elements * dtype.itemsize)
    return torch.frombuffer(memory, dtype=dtype, count=n_elements)
