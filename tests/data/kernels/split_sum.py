"""Sum over rows in two kernels: shares of rows first, then their sum. The number of shares is a host constant."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def partial_sum(x_ptr, part_ptr, n_rows, n_cols, share, BLOCK: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first = tl.program_id(1) * share
    acc = tl.zeros((BLOCK,), tl.float32)
    for row in range(first, tl.minimum(first + share, n_rows)):
        acc += tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(part_ptr + tl.program_id(1) * n_cols + cols, acc, mask=cols < n_cols)


@triton.jit
def final_mean(part_ptr, out_ptr, n_cols, n_rows, SHARES: tl.constexpr, BLOCK: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for s in range(SHARES):
        acc += tl.load(part_ptr + s * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(out_ptr + cols, acc / n_rows, mask=cols < n_cols)


class ModelNew(nn.Module):
    def forward(self, x):
        n_rows, n_cols = x.shape
        SHARES = 4
        BLOCK = 128
        share = triton.cdiv(n_rows, SHARES)
        part = torch.empty((SHARES, n_cols), device=x.device, dtype=torch.float32)
        out = torch.empty((n_cols,), device=x.device, dtype=torch.float32)
        partial_sum[(triton.cdiv(n_cols, BLOCK), SHARES)](x, part, n_rows, n_cols, share, BLOCK=BLOCK, num_warps=4)
        final_mean[(triton.cdiv(n_cols, BLOCK),)](part, out, n_cols, n_rows, SHARES=SHARES, BLOCK=BLOCK, num_warps=1)
        return out


def get_inputs(aligned):
    return [torch.randn(32, 512) if aligned else torch.randn(37, 300)]
