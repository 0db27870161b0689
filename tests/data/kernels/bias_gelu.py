"""Bias and tanh-GELU over a flat tensor; module constants, options in a mapping."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
TILES_PER_PROGRAM = tl.constexpr(2)
LAUNCH = {"num_warps": 4}


@triton.jit
def gelu(x):
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return x * (1.0 - 1.0 / (tl.exp(2.0 * u) + 1.0))


@triton.jit
def bias_gelu_kernel(x_ptr, b_ptr, y_ptr, n_elements, n_cols, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    for i in tl.static_range(TILES_PER_PROGRAM):
        idx = (pid * TILES_PER_PROGRAM + i) * BLOCK + tl.arange(0, BLOCK)
        inside = idx < n_elements
        x = tl.load(x_ptr + idx, mask=inside)
        b = tl.load(b_ptr + idx % n_cols, mask=inside)
        tl.store(y_ptr + idx, gelu(x + b), mask=inside)


def kernel_function(x, bias):
    y = torch.empty_like(x)
    n = x.numel()
    bias_gelu_kernel[(triton.cdiv(n, BLOCK * TILES_PER_PROGRAM.value),)](x, bias, y, n, x.shape[1], BLOCK, **LAUNCH)
    return y


def get_inputs(aligned):
    n = 256 if aligned else 99
    return [torch.randn(32 if aligned else 33, n), torch.randn(n)]
