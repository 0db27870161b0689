"""Causal self-attention written out, with its norm before and its residual after."""

import torch
import torch.nn as nn

batch = 8
length = 512
width = 512
heads = 8


class Model(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(length, length)).bool())

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm(x)).split(c, dim=-1)
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
        scores = (q @ k.transpose(-2, -1)) * (c // self.heads) ** -0.5
        scores = scores.masked_fill(~self.mask[:t, :t], float("-inf"))
        y = torch.softmax(scores, dim=-1) @ v
        return x + self.out(y.transpose(1, 2).reshape(b, t, c))


def get_inputs():
    return [torch.randn(batch, length, width)]


def get_init_inputs():
    return [width, heads, length]
