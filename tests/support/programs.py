"""Programs for tests of capture, trace and model: a softmax whose text is easily varied, and what a forward needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from db.records import Capture, Hardware, TensorSpec
from evaluators.capture.capture import InputSpec, capture_candidate, trace_candidate
from evaluators.capture.traffic import LaunchTrace
from evaluators.hardware import load_hardware
from evaluators.sandbox import Zygote

HEAD = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl


"""

SOFTMAX = (
    HEAD
    + """\
@triton.jit
def softmax_kernel(x, y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + row * n + offsets, mask=mask, other=-float("inf"))
    value = value - tl.max(value, 0)
    numerator = tl.exp(value)
    tl.store(y + row * n + offsets, numerator / tl.sum(numerator, 0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=4096, num_warps=8)
        return y
"""
)

TWO_WALKS = (
    HEAD
    + """\
@triton.jit
def walk_kernel(x, y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    total = 0.0
    for start in range(0, n, BLOCK):
        total += tl.sum(tl.load(x + row * n + start + offsets), 0)
    for start in range(0, n, BLOCK):
        at = row * n + start + offsets
        tl.store(y + at, tl.load(x + at) / total)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        walk_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=1024, num_warps=4)
        return y
"""
)

MATMUL = (
    HEAD
    + """\
@triton.jit
def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    a_tile = a + rows[:, None] * K + inner[None, :]
    b_tile = b + inner[:, None] * N + columns[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        total = tl.dot(tl.load(a_tile), tl.load(b_tile), total)
        a_tile += BK
        b_tile += BK * N
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(tl.float16))


class ModelNew(nn.Module):
    def forward(self, a, b):
        M, K = a.shape
        N = b.shape[1]
        c = torch.empty((M, N), device=a.device, dtype=a.dtype)
        grid = lambda meta: (triton.cdiv(M, meta["BM"]), triton.cdiv(N, meta["BN"]))
        matmul_kernel[grid](a, b, c, M, N, K, BM=128, BN=128, BK=64, num_warps=8, num_stages=3)
        return c
"""
)


def edited(source: str, *edits: tuple[str, str]) -> str:
    """The source with each text replaced; fails when a text is not there, so that no edit is lost."""
    for old, new in edits:
        assert old in source, old
        source = source.replace(old, new)
    return source


def tensor(*shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(shape=shape, dtype=dtype)


def capture(
    zygote: Zygote,
    source: str,
    *inputs: InputSpec,
    hardware: Hardware | None = None,
    entry_point: str = "ModelNew",
    init_args: Sequence[Any] = (),
    weights: Mapping[str, TensorSpec] = {},
) -> Capture:
    """The capture of one forward on an H100, or another GPU."""
    return capture_candidate(
        zygote, **_forward(source, inputs, hardware, entry_point, init_args, weights), deadline_s=60
    )


def trace(
    zygote: Zygote,
    source: str,
    *inputs: InputSpec,
    hardware: Hardware | None = None,
    entry_point: str = "ModelNew",
    init_args: Sequence[Any] = (),
    weights: Mapping[str, TensorSpec] = {},
) -> list[LaunchTrace]:
    """The traces of one forward."""
    return trace_candidate(zygote, **_forward(source, inputs, hardware, entry_point, init_args, weights), deadline_s=60)


def _forward(
    source: str,
    inputs: Sequence[InputSpec],
    hardware: Hardware | None,
    entry_point: str,
    init_args: Sequence[Any],
    weights: Mapping[str, TensorSpec],
) -> dict[str, Any]:
    return {
        "source": source,
        "entry_point": entry_point,
        "init_args": init_args,
        "input_specs": inputs,
        "weight_specs": weights,
        "workload_name": "full",
        "hardware": hardware or load_hardware("h100"),
    }
