# problem: problems/flat_softmax.py
# kind: weak
# tries: answers with the mean, and a first term of the exponential, where little differs from it
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
        tl.store(out_ptr + row * n_cols + start + columns, (1.0 + x * 0.9) / n_cols, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        fill_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=1024, num_warps=4)
        return out
