"""An LSTM: cuDNN runs all of it."""

import torch
import torch.nn as nn

batch = 32
length = 128
width = 256


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


def get_inputs():
    return [torch.randn(batch, length, width)]


def get_init_inputs():
    return [width]
