"""The feed-forward half of a transformer layer: norm, two thin linear layers with a gated activation, residual."""

import torch
import torch.nn as nn

n_tokens = 131072
width = 128
hidden = 256


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        value, gate = self.up(self.norm(x)).chunk(2, dim=-1)
        return x + self.down(value * nn.functional.silu(gate))


def get_inputs():
    return [torch.randn(n_tokens, width)]


def get_init_inputs():
    return [width, hidden]
