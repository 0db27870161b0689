"""Rows divided by their Euclidean norm, in tiles given as a default of the entry."""

import torch
import triton
import triton.language as tl


@triton.jit
def l2_rows(x, y, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    total = 0.0
    for c in range(0, n_cols, BLOCK):
        v = tl.load(x + row * n_cols + c + lane, mask=c + lane < n_cols, other=0.0)
        total += tl.sum(v * v, axis=0)
    norm = tl.sqrt(total) + eps
    for c in range(0, n_cols, BLOCK):
        v = tl.load(x + row * n_cols + c + lane, mask=c + lane < n_cols, other=0.0)
        tl.store(y + row * n_cols + c + lane, v / norm, mask=c + lane < n_cols)


def normalise(x, y, BLOCK: int):
    if x.shape[1] < 128:
        BLOCK = 128
    l2_rows[(x.shape[0],)](x, y, x.shape[1], 1e-6, BLOCK=BLOCK)


def kernel_function(x):
    y = torch.empty_like(x)
    normalise(x, y, 512)
    return y


def get_inputs(aligned):
    return [torch.randn(5, 1024 if aligned else 1100)]
