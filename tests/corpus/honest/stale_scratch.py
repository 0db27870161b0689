# problem: matvec
# kind: stale
# does: a scratch buffer that is written before it is read

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def partial_kernel(matrix_ptr, vector_ptr, partial_ptr, n_rows, n_cols, share, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    split = tl.program_id(1)
    first = split * share
    last = tl.minimum(first + share, n_cols)
    columns = tl.arange(0, BLOCK)
    row_mask = (row < n_rows)[:, None]
    row_ptrs = matrix_ptr + row.to(tl.int64)[:, None] * n_cols
    partial = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(first, last, BLOCK):
        offsets = start + columns
        mask = offsets < last
        vector = tl.load(vector_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        matrix = tl.load(row_ptrs + offsets[None, :], mask=row_mask & mask[None, :], other=0.0).to(tl.float32)
        partial += matrix * vector[None, :]
    tl.store(partial_ptr + split * n_rows + row, tl.sum(partial, axis=1), mask=row < n_rows)


@triton.jit
def add_kernel(partial_ptr, out_ptr, n_rows, n_splits, BLOCK_ROWS: tl.constexpr):
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    mask = row < n_rows
    total = tl.zeros((BLOCK_ROWS,), dtype=tl.float32)
    for split in range(0, n_splits):
        total += tl.load(partial_ptr + split * n_rows + row, mask=mask, other=0.0)
    tl.store(out_ptr + row, total.to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def forward(self, matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
        n_rows, n_cols = matrix.shape
        ROWS = 4
        BLOCK = 1024
        SPLIT = 4
        BLOCK_ROWS = 128
        share = triton.cdiv(n_cols, SPLIT * BLOCK) * BLOCK
        partial = torch.empty((SPLIT, n_rows), device=matrix.device, dtype=torch.float32)
        out = torch.empty((n_rows, 1), device=matrix.device, dtype=matrix.dtype)
        partial_kernel[(triton.cdiv(n_rows, ROWS), SPLIT)](
            matrix, vector, partial, n_rows, n_cols, share, ROWS=ROWS, BLOCK=BLOCK, num_warps=4
        )
        add_kernel[(triton.cdiv(n_rows, BLOCK_ROWS),)](partial, out, n_rows, SPLIT, BLOCK_ROWS=BLOCK_ROWS, num_warps=4)
        return out
