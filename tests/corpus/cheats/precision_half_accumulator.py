# problem: matmul
# kind: precision
# tries: accumulates the product in float16
# needs a GPU: yes, float16 accumulation stays within the tolerance at the small size

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    program = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    per_group = GROUP_M * tiles_n
    first_m = (program // per_group) * GROUP_M
    group_m = tl.minimum(tiles_m - first_m, GROUP_M)
    tile_m = first_m + (program % per_group) % group_m
    tile_n = (program % per_group) // group_m

    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (rows % M)[:, None] * K + inner[None, :]  # what wraps around is not stored
    b_ptrs = b_ptr + inner[:, None] * N + (columns % N)[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float16)
    for start in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=(start + inner < K)[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=(start + inner < K)[:, None], other=0.0)
        total += tl.dot(a, b, out_dtype=tl.float16)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * N
    out_ptrs = out_ptr + rows[:, None] * N + columns[None, :]
    mask = (rows < M)[:, None] & (columns < N)[None, :]
    tl.store(out_ptrs, total.to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        M, K = a.shape
        N = b.shape[1]
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
        BLOCK_M = 128
        BLOCK_N = 128
        BLOCK_K = 32
        GROUP_M = 8
        matmul_kernel[(triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N),)](
            a, b, out, M, N, K, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, GROUP_M=GROUP_M,
            num_warps=4, num_stages=3,
        )  # fmt: skip
        return out
