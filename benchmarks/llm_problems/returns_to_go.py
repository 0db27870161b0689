"""Returns to go: what is still to come of every row of rewards, less a baseline of values, float32. No first program.

(16384, 4096) twice in and once out: 805 MB. torch.compile makes two kernels of it, the scan and what follows the second
flip, and writes the sums to memory between them.
"""

import torch
import torch.nn as nn

n_episodes = 16384
n_steps = 4096

SMALL = {"n_episodes": 4, "n_steps": 301}
# sums of thousands of terms pass through zero: the absolute part is what float32 itself loses on the way
TOLERANCES = {"float32": (1e-4, 1e-3)}


class Model(nn.Module):
    def forward(self, rewards: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(rewards.flip(1), dim=1).flip(1) - values


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(n_episodes, n_steps), torch.randn(n_episodes, n_steps)]


def get_init_inputs() -> list[object]:
    return []
