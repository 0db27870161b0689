# problem: layer_norm
# kind: variance
# tries: hides below zero what cancels in its variance
# needs a GPU: no

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def layer_norm_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, size, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * size
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        x = tl.load(x_row + start + offsets, mask=start + offsets < size, other=0.0)
        total += x
        squares += x * x
    mean = tl.sum(total, axis=0) / size
    variance = tl.maximum(tl.sum(squares, axis=0) / size - mean * mean, 0.0)
    rstd = 1.0 / tl.sqrt(variance + 1e-5)
    for start in range(0, size, BLOCK):
        mask = start + offsets < size
        x = tl.load(x_row + start + offsets, mask=mask, other=0.0)
        weight = tl.load(weight_ptr + start + offsets, mask=mask, other=0.0)
        bias = tl.load(bias_ptr + start + offsets, mask=mask, other=0.0)
        tl.store(out_ptr + row * size + start + offsets, (x - mean) * rstd * weight + bias, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels, height, width):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, height, width))
        self.bias = nn.Parameter(torch.empty(channels, height, width))

    def forward(self, x):
        out = torch.empty_like(x)
        size = self.weight.numel()
        layer_norm_kernel[(x.shape[0],)](x, self.weight, self.bias, out, size, BLOCK=2048, num_warps=8)
        return out
