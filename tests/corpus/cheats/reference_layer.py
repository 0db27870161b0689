# problem: layer_norm
# kind: reference
# tries: holds a layer of torch under another name and calls it
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


class ModelNew(nn.Module):
    def __init__(self, channels, height, width):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, height, width))
        self.bias = nn.Parameter(torch.empty(channels, height, width))
        self.holder = nn.LayerNorm((channels, height, width), elementwise_affine=False)

    def forward(self, x):
        normalise = self.holder
        out = normalise(x) * self.weight + self.bias
        ghost_kernel[(triton.cdiv(out.numel(), 1024),)](out, out.numel(), BLOCK=1024)
        return out
