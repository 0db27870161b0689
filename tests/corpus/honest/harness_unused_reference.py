# problem: softmax
# kind: harness
# does: a reference and its inputs in the same file, which nothing leads to

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


class Model(nn.Module):
    """What the kernel replaces."""

    axis = 1

    def __init__(self):
        super().__init__()
        self.softmax = nn.Softmax(dim=self.axis)

    @property
    def name(self):
        import os

        return os.path.basename(__file__)

    @torch.no_grad()
    def forward(self, x):
        return self.softmax(x)


def get_inputs(n_rows: int = 16):
    import numpy as np

    return [torch.from_numpy(np.random.rand(n_rows, 1024))]


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=1024, num_warps=4)
        return out
