"""RMS normalisation times a gate, a half-precision row in one tile; statistics are kept for later."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gated_rms_kernel(x_ptr, g_ptr, w_ptr, y_ptr, rstd_ptr, dim, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * dim
    g_ptr += row * dim
    y_ptr += row * dim
    lane = tl.arange(0, BLOCK)
    keep = lane < dim
    x = tl.load(x_ptr + lane, mask=keep, other=0.0).to(tl.float32)
    g = tl.load(g_ptr + lane, mask=keep, other=0.0).to(tl.float32)
    x = x * tl.sigmoid(g)
    ms = tl.sum(x * x, axis=0) / dim
    rstd = 1.0 / tl.sqrt(ms + eps)
    tl.store(rstd_ptr + row, rstd)
    w = tl.load(w_ptr + lane, mask=keep, other=0.0)
    y = x * rstd * w
    tl.store(y_ptr + lane, y.to(tl.float16), mask=keep)


class ModelNew(nn.Module):
    def forward(self, x, gate, weight):
        y = torch.empty_like(x)
        rstd = torch.empty(x.shape[0], device=x.device, dtype=torch.float32)
        block = triton.next_power_of_2(x.shape[1])
        gated_rms_kernel[(x.shape[0],)](x, gate, weight, y, rstd, x.shape[1], 1e-6, BLOCK=block, num_warps=8)
        return y, rstd


def get_inputs(aligned):
    n = 2048 if aligned else 1100
    return [torch.randn(3, n).half(), torch.randn(3, n).half(), torch.randn(n)]
