"""A linear layer, layer norm, GELU, and a residual."""

import torch
import torch.nn as nn

batch = 4096
width = 1024


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return x + nn.functional.gelu(self.norm(self.linear(x))) * 2


def get_inputs():
    return [torch.randn(batch, width)]


def get_init_inputs():
    return [width]
