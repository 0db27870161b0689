# problem: matvec
# kind: stale
# does: programs add to a total in empty memory, one after the other: the first one finds a counter of zero

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(matrix_ptr, vector_ptr, total_ptr, turn_ptr, n_cols, share, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    split = tl.program_id(1)
    first = split * share
    last = tl.minimum(first + share, n_cols)
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(first, last, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        matrix = tl.load(matrix_ptr + row * n_cols + offsets, mask=offsets < last, other=0.0)
        vector = tl.load(vector_ptr + offsets, mask=offsets < last, other=0.0)
        sums += matrix.to(tl.float32) * vector.to(tl.float32)
    total = tl.sum(sums, axis=0)
    while tl.atomic_add(turn_ptr + row, 0) != split:
        pass
    if split > 0:
        total += tl.load(total_ptr + row)
    tl.store(total_ptr + row, total)
    tl.debug_barrier()
    tl.atomic_add(turn_ptr + row, 1)


@triton.jit
def round_kernel(total_ptr, out_ptr, n_rows, BLOCK: tl.constexpr):
    row = tl.arange(0, BLOCK)
    total = tl.load(total_ptr + row, mask=row < n_rows)
    tl.store(out_ptr + row, total.to(out_ptr.dtype.element_ty), mask=row < n_rows)


class ModelNew(nn.Module):
    def forward(self, matrix, vector):
        n_rows, n_cols = matrix.shape
        total = torch.empty((n_rows,), device=matrix.device, dtype=torch.float32)
        turns = torch.zeros((n_rows,), device=matrix.device, dtype=torch.int32)
        out = torch.empty((n_rows, 1), device=matrix.device, dtype=matrix.dtype)
        add_kernel[(n_rows, 4)](matrix, vector, total, turns, n_cols, triton.cdiv(n_cols, 4), BLOCK=1024)
        round_kernel[(1,)](total, out, n_rows, BLOCK=triton.next_power_of_2(n_rows))
        return out
