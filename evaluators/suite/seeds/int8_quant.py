"""Row-wise int8 quantisation: one program a row, its largest absolute value first, then a second walk that writes."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def int8_quant_kernel(x_ptr, out_ptr, scale_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * n_cols
    out_row = out_ptr + row * n_cols
    columns = tl.arange(0, BLOCK)
    largest = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        offsets = start + columns
        x = tl.load(x_row + offsets, mask=offsets < n_cols, other=0.0).to(tl.float32)
        largest = tl.maximum(largest, tl.abs(x))
    scale = tl.div_rn(tl.maximum(tl.max(largest, axis=0), 1e-6), 127.0)
    tl.store(scale_ptr + row, scale)
    # backwards, to meet what the first walk left in the cache
    n_tiles = tl.cdiv(n_cols, BLOCK)
    for tile in range(0, n_tiles):
        offsets = (n_tiles - 1 - tile) * BLOCK + columns
        mask = offsets < n_cols
        x = tl.load(x_row + offsets, mask=mask, other=0.0).to(tl.float32)
        nearest = (tl.div_rn(x, scale) + 12582912.0) - 12582912.0  # 1.5 * 2^23: rounds to even, as torch does
        tl.store(out_row + offsets, nearest.to(tl.int8), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        n_rows, n_cols = x.shape
        out = torch.empty((n_rows, n_cols), device=x.device, dtype=torch.int8)
        scale = torch.empty((n_rows, 1), device=x.device, dtype=torch.float32)
        BLOCK = 1024
        int8_quant_kernel[(n_rows,)](x, out, scale, n_cols, BLOCK=BLOCK, num_warps=4)
        return out, scale
