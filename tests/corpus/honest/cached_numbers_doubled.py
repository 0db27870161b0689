# problem: softmax
# kind: cached
# does: doubles numbers, and makes tensors of other types

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
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
    for start in range(0, n_cols, BLOCK):
        offsets = start + columns
        mask = offsets < n_cols
        x = tl.load(x_ptr + row * n_cols + offsets, mask=mask, other=float("-inf"))
        tl.store(out_ptr + row * n_cols + offsets, tl.exp(x - row_max) / row_sum, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.scale.requires_grad_(False)
        self.eval()

    def forward(self, x):
        n_rows, n_cols = x.shape
        block = 64
        while block < min(n_cols, 1024):
            block *= 2
        n_programs = n_rows
        n_programs *= 1
        sizes = []
        sizes += x.shape
        x = x.to(self.scale.float().dtype)
        out = torch.empty_like(x)
        softmax_kernel[(n_programs,)](x, out, sizes[1], BLOCK=block, num_warps=4)
        return out
