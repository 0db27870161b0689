"""A convolution, batch norm, tanh, scale, bias and max pooling."""

import torch
import torch.nn as nn

batch = 64
channels = 32
size = 64


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(channels, 64, 3, padding=1), nn.BatchNorm2d(64), nn.Tanh())
        self.bias = nn.Parameter(torch.randn(64, 1, 1))

    def forward(self, x):
        return nn.functional.max_pool2d(self.net(x) * 1.5 + self.bias, 2)


def get_inputs():
    return [torch.randn(batch, channels, size, size)]


def get_init_inputs():
    return [channels]
