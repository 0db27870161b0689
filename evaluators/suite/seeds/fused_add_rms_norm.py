"""Residual add and root-mean-square normalisation: one program holds a row."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_rms_norm_kernel(x_ptr, residual_ptr, weight_ptr, out_ptr, added_ptr, hidden, eps, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * hidden
    offsets = tl.arange(0, BLOCK)
    mask = offsets < hidden
    x = tl.load(x_ptr + start + offsets, mask=mask, other=0.0)
    residual = tl.load(residual_ptr + start + offsets, mask=mask, other=0.0)
    added = x + residual
    tl.store(added_ptr + start + offsets, added, mask=mask)
    wide = added.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(wide * wide, axis=0) / hidden + eps)
    weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + start + offsets, (wide * scale * weight).to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, hidden: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(hidden, dtype=torch.float16))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        n_tokens, hidden = x.shape
        out = torch.empty_like(x)
        added = torch.empty_like(x)
        BLOCK = triton.next_power_of_2(hidden)
        add_rms_norm_kernel[(n_tokens,)](
            x, residual, self.weight, out, added, hidden, self.eps, BLOCK=BLOCK, num_warps=4
        )
        return out, added
