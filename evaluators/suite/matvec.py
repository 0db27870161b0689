"""Matrix times vector, float16.

(2048, 262144) by (262144, 1): 1.07 GB in, 4 KB out. Sums are kept in float32.
"""

import torch
import torch.nn as nn

n_rows = 2048
n_cols = 262144

SMALL = {"n_rows": 11, "n_cols": 5003}
TOLERANCES = {"float16": (4e-3, 2e-3)}


class Model(nn.Module):
    def forward(self, matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
        return torch.matmul(matrix, vector)


def get_inputs() -> list[torch.Tensor]:
    matrix = torch.randn(n_rows, n_cols, dtype=torch.float16)
    vector = torch.randn(n_cols, 1) / n_cols**0.5  # results of order one
    return [matrix, vector.half()]


def get_init_inputs() -> list[object]:
    return []
