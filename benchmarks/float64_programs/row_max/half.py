"""relaxed: the largest element, rounded to float16"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def max_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    greatest = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, n_cols, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + offsets, mask=offsets < n_cols, other=float("-inf"))
        greatest = tl.maximum(greatest, x)
    tl.store(out_ptr + row, tl.max(greatest, 0).to(tl.float16).to(tl.float32))


class ModelNew(nn.Module):
    def forward(self, x):
        n_rows, n_cols = x.shape
        out = torch.empty((n_rows,), dtype=x.dtype, device=x.device)
        max_kernel[(n_rows,)](x, out, n_cols, BLOCK=512)
        return out
