"""Rows brought to mean 0 and standard deviation 1, float32: a kernel for means, one for variances, one to apply.

(9216, 7168): 264 MB in, 264 MB out, read three times. One program that keeps its row in registers reads it once; no
setting of three kernels does. Rows are no power of two and their mean is far from zero, so a tile that forgets its mask
is wrong.
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

batch_size = 9216
dim = 7168

SMALL = {"batch_size": 4, "dim": 393}


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(dim=1, keepdim=True)
        variance = x.var(dim=1, keepdim=True, correction=0)
        return (x - mean) * torch.rsqrt(variance + 1e-6)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, dim) * 2.0 + 3.0]


def get_init_inputs() -> list[object]:
    return []


@triton.jit
def mean_kernel(x_ptr, mean_ptr, n_cols, BLOCK: tl.constexpr):
    x_row = x_ptr + tl.program_id(0).to(tl.int64) * n_cols
    columns = tl.arange(0, BLOCK)
    partial = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        offsets = start + columns
        partial += tl.load(x_row + offsets, mask=offsets < n_cols, other=0.0)
    tl.store(mean_ptr + tl.program_id(0), tl.sum(partial, axis=0) / n_cols)


@triton.jit
def variance_kernel(x_ptr, mean_ptr, variance_ptr, n_cols, BLOCK: tl.constexpr):
    x_row = x_ptr + tl.program_id(0).to(tl.int64) * n_cols
    columns = tl.arange(0, BLOCK)
    mean = tl.load(mean_ptr + tl.program_id(0))
    partial = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        offsets = start + columns
        mask = offsets < n_cols
        centred = tl.where(mask, tl.load(x_row + offsets, mask=mask, other=0.0) - mean, 0.0)
        partial += centred * centred
    tl.store(variance_ptr + tl.program_id(0), tl.sum(partial, axis=0) / n_cols)


@triton.jit
def apply_kernel(x_ptr, mean_ptr, variance_ptr, out_ptr, n_cols, eps, BLOCK_OUT: tl.constexpr):
    row = tl.program_id(0)
    start = row.to(tl.int64) * n_cols
    offsets = tl.program_id(1) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    mask = offsets < n_cols
    mean = tl.load(mean_ptr + row)
    rstd = 1.0 / tl.sqrt(tl.load(variance_ptr + row) + eps)
    x = tl.load(x_ptr + start + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + start + offsets, (x - mean) * rstd, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape
        mean = torch.empty((rows,), device=x.device, dtype=x.dtype)
        variance = torch.empty((rows,), device=x.device, dtype=x.dtype)
        out = torch.empty_like(x)
        BLOCK = 2048
        BLOCK_OUT = 2048
        mean_kernel[(rows,)](x, mean, columns, BLOCK=BLOCK, num_warps=4)
        variance_kernel[(rows,)](x, mean, variance, columns, BLOCK=BLOCK, num_warps=4)
        apply_kernel[(rows, triton.cdiv(columns, BLOCK_OUT))](
            x, mean, variance, out, columns, 1e-6, BLOCK_OUT=BLOCK_OUT, num_warps=4
        )
        return out
