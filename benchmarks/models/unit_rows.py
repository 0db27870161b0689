"""Embeddings brought to unit length and weighted per feature, with the length of each beside: a retrieval index.

(8192, 16384): 0.54 GB in, 0.54 GB out.
"""

import torch
import torch.nn as nn

n_rows = 8192
n_features = 16384

# a row of unit length has values of about 0.008
TOLERANCES = {"float32": (1e-4, 1e-6)}


class Model(nn.Module):
    def __init__(self, n_features):
        super().__init__()
        self.weight = nn.Parameter(1.0 + 0.2 * torch.randn(n_features))

    def forward(self, x):
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x / length.clamp_min(1e-6) * self.weight, length.squeeze(-1)


def get_inputs():
    return [torch.randn(n_rows, n_features) * 2.0]


def get_init_inputs():
    return [n_features]
