"""Mean cross entropy of logits against labels, float32.

(32768, 4096): 0.54 GB in, one number out.
"""

import torch
import torch.nn as nn

batch_size = 32768
n_classes = 4096

SMALL = {"batch_size": 67, "n_classes": 1500}
TOLERANCES = {"float32": (1e-5, 1e-5)}


class Model(nn.Module):
    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(logits, labels)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, n_classes) * 2.0, torch.randint(0, n_classes, (batch_size,))]


def get_init_inputs() -> list[object]:
    return []
