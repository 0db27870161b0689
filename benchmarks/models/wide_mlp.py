"""Two wide linear layers: nearly all of the time is matrix products."""

import torch
import torch.nn as nn

batch = 4096
width = 4096


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, x):
        return self.layers(x)


def get_inputs():
    return [torch.randn(batch, width)]


def get_init_inputs():
    return [width]
