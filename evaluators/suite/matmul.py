"""Matrix product, float16.

4096 x 4096 x 4096: 137 GFLOP. Sums are kept in float32.
"""

import torch
import torch.nn as nn

M = 4096
N = 4096
K = 4096

SMALL = {"M": 129, "N": 70, "K": 100}
TOLERANCES = {"float16": (4e-3, 2e-3)}


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(a, b)


def get_inputs() -> list[torch.Tensor]:
    a = torch.randn(M, K, dtype=torch.float16)
    b = torch.randn(K, N) / K**0.5  # results of order one
    return [a, b.half()]


def get_init_inputs() -> list[object]:
    return []
