"""reference: maximum and sum in one walk, rescaled as the maximum grows (Milakov and Gimelshein, 2018)"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    greatest = float("-inf")
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + offsets, mask=offsets < n_cols, other=float("-inf"))
        larger = tl.maximum(greatest, tl.max(x, 0))
        total = total * tl.exp(greatest - larger) + tl.sum(tl.exp(x - larger), 0)
        greatest = larger
    for start in range(0, n_cols, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + offsets, mask=offsets < n_cols)
        tl.store(out_ptr + row * n_cols + offsets, tl.exp(x - greatest) / total, mask=offsets < n_cols)


class ModelNew(nn.Module):
    def forward(self, x):
        n_rows, n_cols = x.shape
        out = torch.empty_like(x)
        softmax_kernel[(n_rows,)](x, out, n_cols, BLOCK=512)
        return out
