"""Rows to mean 0 and variance 1, then a residual; a row in one tile, two depths of reductions."""

import torch
import triton
import triton.language as tl


@triton.jit
def standardise_kernel(x, res, out, stride, N, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + pid * stride + i, mask=i < N, other=0.0)
    centred = tl.where(i < N, v - tl.sum(v, 0) / N, 0.0)
    scale = tl.sqrt(tl.sum(centred * centred, 0) / N) + 1e-5
    r = tl.load(res + pid * stride + i, mask=i < N, other=0.0)
    tl.store(out + pid * stride + i, centred / scale + r, mask=i < N)


def kernel_function(x, residual):
    out = torch.empty_like(x)
    standardise_kernel[(x.shape[0],)](
        x, residual, out, x.stride(0), x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=4
    )
    return out


def get_inputs(aligned):
    n = 2048 if aligned else 1100
    return [torch.randn(3, n), torch.randn(3, n)]
