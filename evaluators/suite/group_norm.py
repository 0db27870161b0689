"""Group norm with 8 groups, affine, float32.

(64, 64, 256, 256): 1.07 GB in, 1.07 GB out.
"""

import torch
import torch.nn as nn

batch_size = 64
channels = 64
height = 256
width = 256
n_groups = 8

SMALL = {"batch_size": 2, "channels": 6, "height": 45, "width": 47, "n_groups": 2}
TOLERANCES = {"float32": (1e-4, 5e-5)}


class Model(nn.Module):
    def __init__(self, channels: int, n_groups: int) -> None:
        super().__init__()
        self.n_groups = n_groups
        self.weight = nn.Parameter(1.0 + 0.2 * torch.randn(channels))
        self.bias = nn.Parameter(0.5 * torch.randn(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.group_norm(x, self.n_groups, self.weight, self.bias, eps=1e-5)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, channels, height, width) * 2.0 + 0.5]


def get_init_inputs() -> list[object]:
    return [channels, n_groups]
