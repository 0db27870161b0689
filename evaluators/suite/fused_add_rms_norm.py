"""Residual add, then root-mean-square norm, float16.

(16384, 4096): 0.27 GB in, 0.27 GB out. Returns the normalised rows and the new residual.
"""

import torch
import torch.nn as nn

n_tokens = 16384
hidden = 4096
eps = 1e-5

SMALL = {"n_tokens": 5, "hidden": 1500}
TOLERANCES = {"float16": (4e-3, 2e-3)}


class Model(nn.Module):
    def __init__(self, hidden: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter((1.0 + 0.2 * torch.randn(hidden)).half())

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        added = x + residual
        wide = added if added.dtype == torch.float64 else added.float()
        scale = torch.rsqrt(torch.mean(wide * wide, dim=1, keepdim=True) + self.eps)
        return (wide * scale * self.weight).to(x.dtype), added


def get_inputs() -> list[torch.Tensor]:
    return [
        torch.randn(n_tokens, hidden, dtype=torch.float16) * 1.5,
        torch.randn(n_tokens, hidden, dtype=torch.float16) * 2.0,
    ]


def get_init_inputs() -> list[object]:
    return [hidden, eps]
