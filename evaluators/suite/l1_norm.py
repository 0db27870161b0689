"""Rows divided by their mean absolute value, float32.

(4096, 65536): 1.07 GB in, 1.07 GB out.
"""

import torch
import torch.nn as nn

n_rows = 4096
n_cols = 65536

SMALL = {"n_rows": 3, "n_cols": 2501}
TOLERANCES = {"float32": (1e-4, 1e-5)}


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / torch.mean(torch.abs(x), dim=1, keepdim=True)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(n_rows, n_cols) * 3.0]


def get_init_inputs() -> list[object]:
    return []
