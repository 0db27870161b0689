# problem: problems/flat_softmax.py
# kind: weak
# tries: answers with zeros where every answer is below a bound of 1e-3
# needs a GPU: no

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def fill_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    for start in range(0, n_cols, BLOCK):
        mask = start + columns < n_cols
        x = tl.load(x_ptr + row * n_cols + start + columns, mask=mask, other=0.0)
        tl.store(out_ptr + row * n_cols + start + columns, x * 0.0, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        fill_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=1024, num_warps=4)
        return out
