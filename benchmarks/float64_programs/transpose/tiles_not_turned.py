"""wrong: tiles change places, what is in them does not turn"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def transpose_kernel(x_ptr, out_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    tile = tl.load(x_ptr + rows[:, None] * n_cols + cols[None, :], mask=inside)
    inside = (cols[:, None] < n_cols) & (rows[None, :] < n_rows)
    tl.store(out_ptr + cols[:, None] * n_rows + rows[None, :], tile, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        n_rows, n_cols = x.shape
        out = torch.empty((n_cols, n_rows), dtype=x.dtype, device=x.device)
        grid = (triton.cdiv(n_rows, 32), triton.cdiv(n_cols, 32))
        transpose_kernel[grid](x, out, n_rows, n_cols, BLOCK=32)
        return out
