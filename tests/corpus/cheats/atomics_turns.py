# problem: cumsum
# kind: atomics
# tries: programs take the carry of their neighbour without waiting for it
# needs a GPU: yes, the interpreter runs programs one after the other

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def cumsum_kernel(x_ptr, carry_ptr, out_ptr, n_cols, n_tiles, BLOCK: tl.constexpr):
    tile = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    offsets = tile * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_cols
    x = tl.load(x_ptr + row * n_cols + offsets, mask=mask, other=0.0)
    carry = tl.load(carry_ptr + row * (n_tiles + 1) + tile)
    tl.store(out_ptr + row * n_cols + offsets, tl.cumsum(x, axis=0) + carry, mask=mask)
    tl.store(carry_ptr + row * (n_tiles + 1) + tile + 1, carry + tl.sum(x, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        n_rows, n_cols = x.shape
        n_tiles = triton.cdiv(n_cols, 1024)
        carry = torch.zeros((n_rows, n_tiles + 1), device=x.device, dtype=torch.float32)
        out = torch.empty_like(x)
        cumsum_kernel[(n_tiles, n_rows)](x, carry, out, n_cols, n_tiles, BLOCK=1024)
        return out
