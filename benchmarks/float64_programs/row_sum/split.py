"""reference: four programs share a row, another launch joins what they leave"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def part_kernel(x_ptr, parts_ptr, n_cols, N_PARTS: tl.constexpr, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(part * BLOCK, n_cols, N_PARTS * BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * n_cols + offsets, mask=offsets < n_cols, other=0.0)
    tl.store(parts_ptr + row * N_PARTS + part, tl.sum(total, 0))


@triton.jit
def join_kernel(parts_ptr, out_ptr, N_PARTS: tl.constexpr):
    row = tl.program_id(0)
    tl.store(out_ptr + row, tl.sum(tl.load(parts_ptr + row * N_PARTS + tl.arange(0, N_PARTS)), 0))


class ModelNew(nn.Module):
    def forward(self, x):
        n_rows, n_cols = x.shape
        parts = torch.empty((n_rows, 4), dtype=torch.float32, device=x.device)
        out = torch.empty((n_rows,), dtype=x.dtype, device=x.device)
        part_kernel[(n_rows, 4)](x, parts, n_cols, N_PARTS=4, BLOCK=512)
        join_kernel[(n_rows,)](parts, out, N_PARTS=4)
        return out
