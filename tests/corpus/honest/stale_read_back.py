# problem: softmax
# kind: stale
# does: stores its own part of the output and reads it back

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    row_max = -3.0e38
    for start in range(0, n_cols, BLOCK):
        offsets = start + columns
        x = tl.load(x_ptr + row * n_cols + offsets, mask=offsets < n_cols, other=float("-inf"))
        row_max = tl.maximum(row_max, tl.max(x, axis=0))
    row_sum = 0.0
    for start in range(0, n_cols, BLOCK):
        offsets = start + columns
        mask = offsets < n_cols
        x = tl.load(x_ptr + row * n_cols + offsets, mask=mask, other=float("-inf"))
        numerator = tl.exp(x - row_max)
        row_sum += tl.sum(numerator, axis=0)
        tl.store(out_ptr + row * n_cols + offsets, numerator, mask=mask)
    for start in range(0, n_cols, BLOCK):
        offsets = start + columns
        mask = offsets < n_cols
        numerator = tl.load(out_ptr + row * n_cols + offsets, mask=mask, other=0.0)
        tl.store(out_ptr + row * n_cols + offsets, numerator / row_sum, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=1024, num_warps=4)
        return out
