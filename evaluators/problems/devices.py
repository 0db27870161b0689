"""Where a reference's tensors go: factories that name no device, and CUDA in files that name it, follow the caller."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode


class CudaMeans(TorchFunctionMode):  # type: ignore[misc]
    """Sends everything that is asked of "cuda" to another device, so that a file written for a GPU runs without one."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = torch.device(device)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.Tensor.cuda:
            return args[0].to(self._device)
        if function is torch.device:  # whose arguments are its parts: ("cuda", 0), type="cuda"
            return self._moved(function(*args, **(kwargs or {})))
        return function(*map(self._moved, args), **{k: self._moved(v) for k, v in (kwargs or {}).items()})

    def _moved(self, value: Any) -> Any:
        is_text = isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))
        is_cuda = isinstance(value, torch.device) and value.type == "cuda"
        return self._device if is_text or is_cuda else value


@contextmanager
def on_device(device: str, *, is_default: bool) -> Iterator[None]:
    """Inside, "cuda" means `device`; with `is_default`, factories that name no device make their tensors there."""
    with ExitStack() as stack:
        if is_default:
            stack.enter_context(torch.device(device))
        stack.enter_context(CudaMeans(device))
        yield


@contextmanager
def seeded(seed: int, device: str = "cpu") -> Iterator[None]:
    """Inside, every generator that a problem's file may use starts from `seed`; afterwards they are as before."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    where = torch.device(device)
    indices = [where.index or 0] if where.type == "cuda" else []
    with torch.random.fork_rng(devices=indices):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)


@contextmanager
def strict_math() -> Iterator[None]:
    """Inside, products of float32 are float32 (no TF32) and sums of half-precision products are kept in float32."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    flags = [
        (matmul, "allow_tf32"),
        (cudnn, "allow_tf32"),
        (matmul, "allow_fp16_reduced_precision_reduction"),
        (matmul, "allow_bf16_reduced_precision_reduction"),
    ]
    before = [getattr(owner, name) for owner, name in flags]
    for owner, name in flags:
        setattr(owner, name, False)
    try:
        yield
    finally:
        for (owner, name), value in zip(flags, before, strict=True):
            setattr(owner, name, value)
