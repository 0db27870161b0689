"""wrong: the padding counts in the variance"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + offsets, mask=offsets < n_cols, other=0.0)
    mean = tl.sum(x, 0) / n_cols
    variance = tl.sum((x - mean) * (x - mean), 0) / BLOCK
    tl.store(out_ptr + row * n_cols + offsets, (x - mean) / tl.sqrt(variance + 1e-5), mask=offsets < n_cols)


class ModelNew(nn.Module):
    def forward(self, x):
        n_rows, n_cols = x.shape
        out = torch.empty_like(x)
        norm_kernel[(n_rows,)](x, out, n_cols, BLOCK=triton.next_power_of_2(n_cols))
        return out
