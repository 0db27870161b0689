"""Average pooling, windows of 11 x 11, float32.

(64, 64, 256, 256), windows that do not overlap: 1.07 GB in, 9 MB out.
"""

import torch
import torch.nn as nn

batch_size = 64
channels = 64
height = 256
width = 256
kernel_size = 11

SMALL = {"batch_size": 1, "channels": 3, "height": 50, "width": 58}
TOLERANCES = {"float32": (1e-4, 1e-5)}


class Model(nn.Module):
    def __init__(self, kernel_size: int) -> None:
        super().__init__()
        self.kernel_size = kernel_size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.avg_pool2d(x, self.kernel_size)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, channels, height, width) * 8.0]  # a mean of 121 values is 11 times smaller


def get_init_inputs() -> list[object]:
    return [kernel_size]
