"""SwiGLU gate: silu(gate) * up, float16.

(16384, 8192): 0.54 GB in, 0.27 GB out.
"""

import torch
import torch.nn as nn

n_tokens = 16384
hidden = 8192

SMALL = {"n_tokens": 5, "hidden": 1003}
TOLERANCES = {"float16": (4e-3, 1e-3)}


class Model(nn.Module):
    def forward(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(gate) * up


def get_inputs() -> list[torch.Tensor]:
    return [
        torch.randn(n_tokens, hidden, dtype=torch.float16) * 2.0,
        torch.randn(n_tokens, hidden, dtype=torch.float16) * 2.0,
    ]


def get_init_inputs() -> list[object]:
    return []
