"""Root-mean-square norm of rows with an exact root and an exact division."""

import torch
import triton
import triton.language as tl


@triton.jit
def rms(x_ptr, y_ptr, n_cols, WIDTH: tl.constexpr):
    start = tl.program_id(0) * n_cols
    col = tl.arange(0, WIDTH)
    v = tl.load(x_ptr + start + col, mask=col < n_cols, other=0.0)
    root = tl.sqrt_rn(tl.sum(v * v, 0) / n_cols + 1e-6)
    tl.store(y_ptr + start + col, tl.div_rn(v, root), mask=col < n_cols)


def kernel_function(x):
    y = torch.empty_like(x)
    rms[(x.shape[0],)](x, y, x.shape[1], WIDTH=triton.next_power_of_2(x.shape[1]), num_warps=2)
    return y


def get_inputs(aligned):
    return [torch.randn(4, 512 if aligned else 333)]
