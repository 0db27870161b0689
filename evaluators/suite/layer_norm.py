"""Layer norm over all but the first dimension, affine, float32.

(64, 64, 256, 256): 1.07 GB in, 1.07 GB out, and 17 MB each of weight and bias.
"""

import torch
import torch.nn as nn

batch_size = 64
channels = 64
height = 256
width = 256

SMALL = {"batch_size": 3, "channels": 5, "height": 33, "width": 31}
TOLERANCES = {"float32": (1e-4, 5e-5)}


class Model(nn.Module):
    def __init__(self, channels: int, height: int, width: int) -> None:
        super().__init__()
        shape = (channels, height, width)
        self.weight = nn.Parameter(1.0 + 0.2 * torch.randn(shape))
        self.bias = nn.Parameter(0.5 * torch.randn(shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.layer_norm(x, x.shape[1:], self.weight, self.bias, eps=1e-5)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, channels, height, width) * 2.0 + 0.5]


def get_init_inputs() -> list[object]:
    return [channels, height, width]
