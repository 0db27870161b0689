# problem: matmul
# kind: reference
# tries: asks the module operator for the product
# needs a GPU: no

import operator

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def ghost_kernel(out_ptr, n_elements, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    tl.store(out_ptr + offsets, tl.load(out_ptr + offsets, mask=mask), mask=mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = operator.matmul(a, b)
        ghost_kernel[(triton.cdiv(out.numel(), 1024),)](out, out.numel(), BLOCK=1024)
        return out
