"""A Mamba-style layer (Gu and Dao, 2023) with one state per channel: its recurrence as two running sums over time.

h[t] = exp(-delta[t] * rate) * h[t-1] + delta[t] * x[t], read out with a skip connection and a gate. The rates are slow
enough that the product of all decays stays in the range of float32.
(16, 1024, 4096): three inputs of 0.27 GB, one such output.
"""

import torch
import torch.nn as nn

batch = 16
channels = 1024
length = 4096


class Model(nn.Module):
    def __init__(self, channels, length):
        super().__init__()
        self.rate = nn.Parameter((0.1 + torch.rand(channels, 1)) / length)
        self.skip = nn.Parameter(torch.ones(channels, 1))
        self.bias = nn.Parameter(0.1 * torch.randn(channels, 1))

    def forward(self, x, step, gate):
        delta = nn.functional.softplus(step + self.bias)
        log_decay = torch.cumsum(-delta * self.rate, dim=-1)
        state = torch.exp(log_decay) * torch.cumsum(delta * x * torch.exp(-log_decay), dim=-1)
        return (state + self.skip * x) * nn.functional.silu(gate)


def get_inputs():
    return [torch.randn(batch, channels, length) for _ in range(3)]


def get_init_inputs():
    return [channels, length]
