# problem: swiglu
# kind: decorator
# tries: a class with a method jit does the same
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


class tools:
    @staticmethod
    def jit(function):
        return function


@tools.jit
def compute(gate, up):
    return gate / (1.0 + 2.718281828459045**-gate) * up


class ModelNew(nn.Module):
    def forward(self, gate, up):
        out = compute(gate, up)
        ghost_kernel[(triton.cdiv(out.numel(), 1024),)](out, out.numel(), BLOCK=1024)
        return out
