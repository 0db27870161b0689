"""Layer normalisation of rows, then GELU, float32: two kernels with the normalised rows in memory between them.

(16384, 4096): 268 MB in, 268 MB out, and as much written and read again for what lies between. One kernel needs half of
these bytes; no setting of two kernels does.
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

batch_size = 16384
dim = 4096

SMALL = {"batch_size": 5, "dim": 321}


class Model(nn.Module):
    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(n_features) + 0.5)
        self.bias = nn.Parameter(torch.randn(n_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normal = nn.functional.layer_norm(x, (x.shape[1],), self.weight, self.bias, eps=1e-5)
        return nn.functional.gelu(normal)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, dim)]


def get_init_inputs() -> list[object]:
    return [dim]


@triton.jit
def layer_norm_kernel(x_ptr, weight_ptr, bias_ptr, normal_ptr, n_cols, eps, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * n_cols
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n_cols
    x = tl.load(x_ptr + start + offsets, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / n_cols
    centred = tl.where(mask, x - mean, 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / n_cols + eps)
    weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0)
    bias = tl.load(bias_ptr + offsets, mask=mask, other=0.0)
    tl.store(normal_ptr + start + offsets, centred * rstd * weight + bias, mask=mask)


@triton.jit
def gelu_kernel(normal_ptr, out_ptr, n_elements, BLOCK_GELU: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_GELU + tl.arange(0, BLOCK_GELU)
    mask = offsets < n_elements
    normal = tl.load(normal_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, 0.5 * normal * (1.0 + tl.erf(normal * 0.7071067811865476)), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_features))
        self.bias = nn.Parameter(torch.empty(n_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape
        normal = torch.empty_like(x)
        out = torch.empty_like(x)
        BLOCK = triton.next_power_of_2(columns)
        BLOCK_GELU = 1024
        layer_norm_kernel[(rows,)](x, self.weight, self.bias, normal, columns, 1e-5, BLOCK=BLOCK, num_warps=4)
        gelu_kernel[(triton.cdiv(x.numel(), BLOCK_GELU),)](normal, out, x.numel(), BLOCK_GELU=BLOCK_GELU, num_warps=4)
        return out
