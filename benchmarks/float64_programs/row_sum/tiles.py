"""reference: the sum of each tile is added to the sum of those before"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x_ptr + row * n_cols + offsets, mask=offsets < n_cols, other=0.0), 0)
    tl.store(out_ptr + row, total)


class ModelNew(nn.Module):
    def forward(self, x):
        n_rows, n_cols = x.shape
        out = torch.empty((n_rows,), dtype=x.dtype, device=x.device)
        sum_kernel[(n_rows,)](x, out, n_cols, BLOCK=1024)
        return out
