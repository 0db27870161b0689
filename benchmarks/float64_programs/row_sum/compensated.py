"""reference: what is lost in each addition is carried along (Kahan, 1965)"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    lost = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        term = tl.load(x_ptr + row * n_cols + offsets, mask=offsets < n_cols, other=0.0) - lost
        larger = total + term
        lost = (larger - total) - term
        total = larger
    tl.store(out_ptr + row, tl.sum(total, 0))


class ModelNew(nn.Module):
    def forward(self, x):
        n_rows, n_cols = x.shape
        out = torch.empty((n_rows,), dtype=x.dtype, device=x.device)
        sum_kernel[(n_rows,)](x, out, n_cols, BLOCK=512)
        return out
