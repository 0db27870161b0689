"""wrong: 120 levels in the place of 127"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def quantise_kernel(x_ptr, out_ptr, scale_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + offsets, mask=offsets < n_cols, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x), 0), 1e-6) / 120.0
    scaled = x / scale
    rounded = tl.where(scaled >= 0, tl.floor(scaled + 0.5), tl.ceil(scaled - 0.5))
    tl.store(out_ptr + row * n_cols + offsets, rounded.to(tl.int8), mask=offsets < n_cols)
    tl.store(scale_ptr + row, scale)


class ModelNew(nn.Module):
    def forward(self, x):
        n_rows, n_cols = x.shape
        out = torch.empty((n_rows, n_cols), dtype=torch.int8, device=x.device)
        scale = torch.empty((n_rows, 1), dtype=torch.float32, device=x.device)
        quantise_kernel[(n_rows,)](x, out, scale, n_cols, BLOCK=triton.next_power_of_2(n_cols))
        return out, scale
