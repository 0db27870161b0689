"""Log-softmax, two statistics walks and one that writes; written with tl.range and cdiv."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

COLUMNS_AT_ONCE = 512


@triton.jit
def log_softmax_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    base = x_ptr + row * n_cols
    m = -3.0e38
    n_blocks = tl.cdiv(n_cols, BLOCK)
    for b in tl.range(0, n_blocks):
        offs = b * BLOCK + tl.arange(0, BLOCK)
        mask = offs < n_cols
        x = tl.load(base + offs, mask=mask, other=float("-inf")).to(tl.float32)
        m = tl.maximum(m, tl.max(x, axis=0))
    total = 0.0
    for b in tl.range(0, n_blocks):
        offs = b * BLOCK + tl.arange(0, BLOCK)
        mask = offs < n_cols
        x = tl.load(base + offs, mask=mask, other=float("-inf")).to(tl.float32)
        total = total + tl.sum(tl.exp(x - m), axis=0)
    shift = m + tl.log(total)
    for b in tl.range(0, n_blocks):
        offs = b * BLOCK + tl.arange(0, BLOCK)
        mask = offs < n_cols
        x = tl.load(base + offs, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + row * n_cols + offs, x - shift, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        grid = (x.shape[0],)
        log_softmax_kernel[grid](x, out, x.shape[1], BLOCK=COLUMNS_AT_ONCE)
        return out


def get_inputs(aligned):
    return [torch.randn(3, 1536 if aligned else 1100)]
