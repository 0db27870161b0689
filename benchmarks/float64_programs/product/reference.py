"""A product of float32 matrices whose elements lie in [0, 1), where TF32 passes an elementwise comparison."""

import torch
import torch.nn as nn

n = 1024
k = 2048

SMALL = {"n": 64, "k": 256}


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.rand(n, k), torch.rand(k, n)]


def get_init_inputs():
    return []
