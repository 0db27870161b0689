"""L1 normalisation of rows, then of columns, float32: one good half here, the other in seeds/double_l1.py.

(16384, 4096): 268 MB in, 268 MB out. Here rows are read once and kept in registers, but columns are summed by way of a
transposed copy of their magnitudes. The other program sums columns in tiles, but rows by way of a copy of theirs. A
child needs the rows of the one and the columns of the other; they share no kernel that could be exchanged.
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

batch_size = 16384
dim = 4096

SMALL = {"batch_size": 40, "dim": 37}


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        by_rows = x / x.abs().mean(dim=1, keepdim=True)
        return by_rows / by_rows.abs().mean(dim=0, keepdim=True)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, dim)]


def get_init_inputs() -> list[object]:
    return []


@triton.jit
def rows_at_once_kernel(x_ptr, y_ptr, n_cols, BLOCK_ROW: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * n_cols
    offsets = tl.arange(0, BLOCK_ROW)
    mask = offsets < n_cols
    x = tl.load(x_ptr + start + offsets, mask=mask, other=0.0)
    scale = n_cols / tl.sum(tl.abs(x), axis=0)
    tl.store(y_ptr + start + offsets, x * scale, mask=mask)


@triton.jit
def turned_magnitudes_kernel(y_ptr, turned_ptr, n_rows, n_cols, BLOCK_TURN: tl.constexpr):
    column = tl.program_id(0)
    row = tl.program_id(1) * BLOCK_TURN + tl.arange(0, BLOCK_TURN)
    mask = row < n_rows
    y = tl.load(y_ptr + row.to(tl.int64) * n_cols + column, mask=mask, other=0.0)
    tl.store(turned_ptr + column.to(tl.int64) * n_rows + row, tl.abs(y), mask=mask)


@triton.jit
def sum_of_line_kernel(turned_ptr, total_ptr, n_rows, BLOCK_SUM: tl.constexpr):
    line = turned_ptr + tl.program_id(0).to(tl.int64) * n_rows
    offsets = tl.arange(0, BLOCK_SUM)
    partial = tl.zeros((BLOCK_SUM,), dtype=tl.float32)
    for start in range(0, n_rows, BLOCK_SUM):
        partial += tl.load(line + start + offsets, mask=start + offsets < n_rows, other=0.0)
    tl.store(total_ptr + tl.program_id(0), tl.sum(partial, axis=0))


@triton.jit
def divide_by_total_kernel(y_ptr, total_ptr, out_ptr, n_rows, n_cols, BLOCK_OUT: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * n_cols
    column = tl.program_id(1) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    mask = column < n_cols
    y = tl.load(y_ptr + start + column, mask=mask, other=0.0)
    total = tl.load(total_ptr + column, mask=mask, other=1.0)
    tl.store(out_ptr + start + column, y * (n_rows / total), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape
        y = torch.empty_like(x)
        out = torch.empty_like(x)
        turned = torch.empty((columns, rows), device=x.device, dtype=x.dtype)
        total = torch.empty((columns,), device=x.device, dtype=x.dtype)
        BLOCK_ROW = triton.next_power_of_2(columns)
        BLOCK_TURN = 1024
        BLOCK_SUM = 2048
        BLOCK_OUT = 1024
        rows_at_once_kernel[(rows,)](x, y, columns, BLOCK_ROW=BLOCK_ROW, num_warps=8)
        turned_magnitudes_kernel[(columns, triton.cdiv(rows, BLOCK_TURN))](
            y, turned, rows, columns, BLOCK_TURN=BLOCK_TURN, num_warps=4
        )
        sum_of_line_kernel[(columns,)](turned, total, rows, BLOCK_SUM=BLOCK_SUM, num_warps=4)
        divide_by_total_kernel[(rows, triton.cdiv(columns, BLOCK_OUT))](
            y, total, out, rows, columns, BLOCK_OUT=BLOCK_OUT, num_warps=4
        )
        return out
