# problem: softmax
# kind: alias
# tries: a star brings softmax in
# needs a GPU: no

from torch.nn.functional import *
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
    def forward(self, x):
        out = softmax(x, 1)
        ghost_kernel[(triton.cdiv(out.numel(), 1024),)](out, out.numel(), BLOCK=1024)
        return out
