"""A layer norm over whole images with its own weight for every pixel, then GELU and a gain per channel.

(32, 64, 256, 256): 0.54 GB in, 0.54 GB out, and 17 MB each of weight and bias.
"""

import torch
import torch.nn as nn

n_images = 32
channels = 64
size = 256


class Model(nn.Module):
    def __init__(self, channels, size):
        super().__init__()
        shape = (channels, size, size)
        self.norm = nn.LayerNorm(shape)
        self.norm.weight = nn.Parameter(1.0 + 0.2 * torch.randn(shape))
        self.norm.bias = nn.Parameter(0.5 * torch.randn(shape))
        self.gain = nn.Parameter(1.0 + 0.1 * torch.randn(channels, 1, 1))

    def forward(self, x):
        return nn.functional.gelu(self.norm(x)) * self.gain


def get_inputs():
    return [torch.randn(n_images, channels, size, size) * 2.0 + 0.5]


def get_init_inputs():
    return [channels, size]
