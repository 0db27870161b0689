# problem: fused_add_rms_norm
# kind: hidden
# does: works in fours, and masks what is left

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, added_ptr, hidden, eps, QUADS: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    quads = tl.arange(0, QUADS)[:, None]
    offsets = quads * 4 + tl.arange(0, 4)[None, :]
    mask = offsets < hidden
    x = tl.load(x_ptr + row * hidden + offsets, mask=mask, other=0.0)
    residual = tl.load(residual_ptr + row * hidden + offsets, mask=mask, other=0.0)
    added = x + residual
    tl.store(added_ptr + row * hidden + offsets, added, mask=mask)
    wide = added.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(wide * wide) / hidden + eps)
    weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * hidden + offsets, wide * scale * weight, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, hidden, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(hidden, dtype=torch.float16))

    def forward(self, x, residual):
        n_tokens, hidden = x.shape
        out = torch.empty_like(x)
        added = torch.empty_like(x)
        QUADS = triton.next_power_of_2(triton.cdiv(hidden, 4))
        add_rms_norm_kernel[(n_tokens,)](
            x, residual, self.weight, out, added, hidden, self.eps, QUADS=QUADS, num_warps=4
        )
        return out, added
