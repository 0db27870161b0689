"""Layer normalisation in three walks; the block is an attribute of the module."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _norm_fwd(X, Y, W, B, stride, N, eps, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    Y += row * stride
    X += row * stride
    _mean = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        a = tl.load(X + cols, mask=cols < N, other=0.).to(tl.float32)
        _mean += a
    mean = tl.sum(_mean, axis=0) / N
    var = 0.0
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        x = tl.load(X + cols, mask=cols < N, other=0.).to(tl.float32)
        x = tl.where(cols < N, x - mean, 0.)
        var += tl.sum(x * x, axis=0)
    rstd = 1 / tl.sqrt(var / N + eps)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        mask = cols < N
        w = tl.load(W + cols, mask=mask)
        b = tl.load(B + cols, mask=mask)
        x = tl.load(X + cols, mask=mask, other=0.).to(tl.float32)
        tl.store(Y + cols, (x - mean) * rstd * w + b, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, size: int = 1280):
        super().__init__()
        self.block = 512
        self.size = size

    def forward(self, x, weight, bias):
        y = torch.empty_like(x)
        rows, size = x.shape
        _norm_fwd[(rows,)](x, y, weight, bias, x.stride(0), size, 1e-5, BLOCK_SIZE=self.block, num_warps=4)
        return y


def get_inputs(aligned):
    n = 1536 if aligned else 1100
    return [torch.randn(3, n), torch.randn(n), torch.randn(n)]
