# problem: softmax
# kind: stale
# does: what one launch leaves in empty memory another takes and changes in place

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def moments_kernel(x_ptr, moments_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    row_max = -3.0e38
    row_sum = 0.0
    for start in range(0, n_cols, BLOCK):
        offsets = start + columns
        x = tl.load(x_ptr + row * n_cols + offsets, mask=offsets < n_cols, other=float("-inf"))
        new_max = tl.maximum(row_max, tl.max(x, axis=0))
        row_sum = row_sum * tl.exp(row_max - new_max) + tl.sum(tl.exp(x - new_max), axis=0)
        row_max = new_max
    tl.store(moments_ptr + 2 * row, row_max)
    tl.store(moments_ptr + 2 * row + 1, row_sum)


@triton.jit
def difference_kernel(x_ptr, out_ptr, moments_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_cols
    x = tl.load(x_ptr + row * n_cols + offsets, mask=mask)
    tl.store(out_ptr + row * n_cols + offsets, x - tl.load(moments_ptr + 2 * row), mask=mask)


@triton.jit
def exponential_kernel(out_ptr, moments_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_cols
    difference = tl.load(out_ptr + row * n_cols + offsets, mask=mask)
    tl.store(out_ptr + row * n_cols + offsets, tl.exp(difference) / tl.load(moments_ptr + 2 * row + 1), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        n_rows, n_cols = x.shape
        out = torch.empty_like(x)
        moments = torch.empty((n_rows, 2), device=x.device, dtype=torch.float32)
        grid = (n_rows, triton.cdiv(n_cols, 1024))
        moments_kernel[(n_rows,)](x, moments, n_cols, BLOCK=1024)
        difference_kernel[grid](x, out, moments, n_cols, BLOCK=1024)
        exponential_kernel[grid](out, moments, n_cols, BLOCK=1024)
        return out
