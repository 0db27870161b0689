# problem: softmax
# kind: decorator
# tries: a decorator named jit marks host code as a kernel
# needs a GPU: no

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def ghost_kernel(out_ptr, n_elements, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    tl.store(out_ptr + offsets, tl.load(out_ptr + offsets, mask=mask), mask=mask)


def jit(function):
    return function


@jit
def compute(x):
    return torch.softmax(x, 1)


class ModelNew(nn.Module):
    def forward(self, x):
        out = compute(x)
        ghost_kernel[(triton.cdiv(out.numel(), 1024),)](out, out.numel(), BLOCK=1024)
        return out
