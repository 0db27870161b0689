"""Discounted returns to go of many episodes, less a baseline: what a policy gradient is weighted with.

Each return is the discounted sum of the rewards from its step on, a running sum from the end of the episode.
(16384, 8192): 0.54 GB of rewards in, 0.54 GB of advantages out.
"""

import torch
import torch.nn as nn

n_episodes = 16384
n_steps = 8192


class Model(nn.Module):
    def __init__(self, n_steps, discount):
        super().__init__()
        self.register_buffer("discounts", discount ** torch.arange(n_steps).double())
        self.discounts = self.discounts.float()

    def forward(self, rewards, baseline):
        later = torch.cumsum((rewards * self.discounts).flip(1), dim=1).flip(1)
        return later / self.discounts - baseline[:, None]


def get_inputs():
    return [torch.randn(n_episodes, n_steps), torch.randn(n_episodes)]


def get_init_inputs():
    return [n_steps, 0.9995]
