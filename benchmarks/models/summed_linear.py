"""A linear layer whose outputs are scaled, added up and passed on through reductions over what is one element by then.

(16384, 4096) in, 0.27 GB; 0.55 TFLOP as it is asked for.
"""

import torch
import torch.nn as nn

n_rows = 16384
n_inputs = 4096
n_outputs = 4096


class Model(nn.Module):
    def __init__(self, n_inputs, n_outputs):
        super().__init__()
        self.linear = nn.Linear(n_inputs, n_outputs)

    def forward(self, x):
        total = torch.sum(self.linear(x) / 2, dim=1, keepdim=True)
        highest = torch.max(total, dim=1, keepdim=True)[0]
        return torch.logsumexp(highest, dim=1, keepdim=True)


def get_inputs():
    return [torch.randn(n_rows, n_inputs)]


def get_init_inputs():
    return [n_inputs, n_outputs]
