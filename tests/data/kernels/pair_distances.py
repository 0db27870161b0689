"""Squared distances of rows to a set of points, summed: nested loops over points and over their dimensions."""

import torch
import triton
import triton.language as tl


@triton.jit
def distance_kernel(x_ptr, p_ptr, out_ptr, n_points, dim, GROUP_ROWS: tl.constexpr, BLOCK_D: tl.constexpr):
    row = tl.program_id(0)
    lane = tl.arange(0, BLOCK_D)
    for r in range(row * GROUP_ROWS, row * GROUP_ROWS + GROUP_ROWS):
        best = 1.0e30
        for p in range(0, n_points):
            total = 0.0
            for d in range(0, dim, BLOCK_D):
                at = d + lane
                x = tl.load(x_ptr + r * dim + at, mask=at < dim, other=0.0)
                q = tl.load(p_ptr + p * dim + at, mask=at < dim, other=0.0)
                total += tl.sum((x - q) * (x - q), axis=0)
            best = tl.minimum(best, total)
        tl.store(out_ptr + r, best)


def kernel_function(x, points):
    out = torch.empty((x.shape[0],), device=x.device, dtype=torch.float32)
    GROUP = 2
    distance_kernel[(x.shape[0] // GROUP,)](x, points, out, points.shape[0], x.shape[1], GROUP_ROWS=GROUP, BLOCK_D=64)
    return out


def get_inputs(aligned):
    d = 128 if aligned else 100
    return [torch.randn(4, d), torch.randn(3, d)]
