"""Rows scaled to a largest absolute value of one, then a square root of the sizes, both exact."""

import torch
import triton
import triton.language as tl

TILE = 128


@triton.jit
def scale_rows(x_ptr, y_ptr, n_cols, TILE: tl.constexpr):
    row = tl.program_id(0)
    lane = tl.arange(0, TILE)
    top = tl.zeros((TILE,), tl.float32)
    for c in range(0, n_cols, TILE):
        v = tl.load(x_ptr + row * n_cols + c + lane, mask=c + lane < n_cols, other=0.0)
        top = tl.maximum(top, tl.abs(v))
    largest = tl.max(top, axis=0) + 1e-3
    for c in range(0, n_cols, TILE):
        v = tl.load(x_ptr + row * n_cols + c + lane, mask=c + lane < n_cols, other=0.0)
        tl.store(y_ptr + row * n_cols + c + lane, tl.sqrt_rn(tl.div_rn(tl.abs(v), largest)), mask=c + lane < n_cols)


def kernel_function(x):
    y = torch.empty_like(x)
    scale_rows[(x.shape[0],)](x, y, x.shape[1], TILE=TILE, num_warps=4)
    return y


def get_inputs(aligned):
    return [torch.randn(3, 512 if aligned else 500)]
