"""Kullback-Leibler divergence, mean over the batch, float32.

Log-probabilities and target probabilities (32768, 4096): 1.07 GB in, one number out.
"""

import torch
import torch.nn as nn

batch_size = 32768
n_classes = 4096

SMALL = {"batch_size": 37, "n_classes": 1500}
TOLERANCES = {"float32": (2e-5, 1e-5)}


class Model(nn.Module):
    def forward(self, log_probabilities: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.kl_div(log_probabilities, targets, reduction="batchmean")


def get_inputs() -> list[torch.Tensor]:
    log_probabilities = torch.log_softmax(torch.randn(batch_size, n_classes) * 1.5, dim=1)
    targets = torch.softmax(torch.randn(batch_size, n_classes) * 1.5, dim=1)
    return [log_probabilities, targets]


def get_init_inputs() -> list[object]:
    return []
