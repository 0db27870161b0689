# problem: matvec
# kind: cached
# does: a workspace made at construction, set to zero in every call

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(matrix_ptr, vector_ptr, total_ptr, n_cols, share, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * share
    last = tl.minimum(first + share, n_cols)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(first, last, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        matrix = tl.load(matrix_ptr + row * n_cols + offsets, mask=offsets < last, other=0.0)
        vector = tl.load(vector_ptr + offsets, mask=offsets < last, other=0.0)
        total += matrix.to(tl.float32) * vector.to(tl.float32)
    tl.atomic_add(total_ptr + row, tl.sum(total, axis=0))


@triton.jit
def round_kernel(total_ptr, out_ptr, n_rows, BLOCK: tl.constexpr):
    row = tl.arange(0, BLOCK)
    total = tl.load(total_ptr + row, mask=row < n_rows)
    tl.store(out_ptr + row, total.to(out_ptr.dtype.element_ty), mask=row < n_rows)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(4096, dtype=torch.float32), persistent=False)

    def forward(self, matrix, vector):
        n_rows, n_cols = matrix.shape
        total = self.total[:n_rows]
        total.zero_()
        out = torch.empty((n_rows, 1), device=matrix.device, dtype=matrix.dtype)
        add_kernel[(n_rows, 4)](matrix, vector, total, n_cols, triton.cdiv(n_cols, 4), BLOCK=1024)
        round_kernel[(1,)](total, out, n_rows, BLOCK=triton.next_power_of_2(n_rows))
        return out
