"""Outputs of Inductor for a GPU, with the modules that they were generated from.

The files of tests/data/inductor are what Inductor 2.11 (2.13 where the name says so) writes for an H200, comments left
out: generated on fake CUDA tensors with the device's properties given, so that sizes could be small enough for the
interpreter. `h200` is one that was taken on an H200; `reuse` is written by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from evaluators.decomposition.binding import weights_of
from evaluators.decomposition.configurations import configurations
from evaluators.decomposition.output import read_output
from evaluators.decomposition.records import Argument, Graph
from evaluators.decomposition.steps import Output

FOLDER = Path(__file__).parent.parent / "data" / "inductor"


class LinearLayerNormGelu(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)
        self.norm = nn.LayerNorm(64)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.gelu(self.norm(self.linear(x))) * 2


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 16))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) + x[:, :16]


class Scan(nn.Module):
    def forward(self, x: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cumsum(x * torch.sigmoid(gate), 1), torch.cumsum(x, 1)[:, -1]


class SplitScan(nn.Module):
    def forward(self, x: Tensor, gate: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        state = torch.cumsum(x * torch.sigmoid(gate), 1)
        return state * 2 + x, state[:, -1], torch.cumsum(counts, 1)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)
        self.register_buffer("mask", torch.tril(torch.ones(8, 8)).bool())

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = (y.view(b, t, 2, 16).transpose(1, 2) for y in self.qkv(self.norm(x)).split(c, -1))
        scores = (q @ k.transpose(-2, -1) / 4).masked_fill(~self.mask, float("-inf"))
        return x + self.out((torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(b, t, c))


class ConvPool(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.max_pool2d(torch.tanh(self.norm(self.conv(x))) * 0.5, 2)


class Concatenation(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cat([torch.softmax(x, -1), torch.cumsum(y, -1)], 1), x.sum(1).mean()


class Sorted(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return torch.sort(x, -1)[0], torch.argmax(x, -1), torch.var(x, -1)


class Reuse(nn.Module):
    """Its output is written by hand: memory of what goes into a group holds what comes out of it, and of what stays
    inside it, what a library answers later."""

    def forward(self, x: Tensor) -> Tensor:
        return (x @ x + 2 * (x @ x)) @ x


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], list[Tensor]]]] = {
    "linear_layernorm_gelu": (LinearLayerNormGelu, lambda: [torch.randn(16, 64)]),
    "mlp": (Mlp, lambda: [torch.randn(8, 32)]),
    "scan": (Scan, lambda: [torch.randn(3, 500), torch.randn(3, 500)]),
    "split_scan_2_13": (
        SplitScan,
        lambda: [torch.rand(12, 1200, 12) / 64, torch.randn(12, 1200, 12), torch.randint(0, 9, (12, 1200, 12))],
    ),
    "attention": (Attention, lambda: [torch.randn(1, 8, 32)]),
    "attention_2_13": (Attention, lambda: [torch.randn(1, 8, 32)]),
    "conv_pool": (ConvPool, lambda: [torch.randn(2, 16, 8, 8)]),
    "concatenation": (Concatenation, lambda: [torch.randn(2, 4, 16), torch.randn(2, 4, 16)]),
    "reuse": (Reuse, lambda: [torch.randn(8, 8)]),
    "sorted": (Sorted, lambda: [torch.randn(3, 10)]),
}


def output_of(name: str) -> Output:
    return read_output((FOLDER / f"{name}.py.txt").read_text())


def model_and_inputs(name: str) -> tuple[nn.Module, list[Tensor]]:
    """A model whose weights are all drawn, so that none is without effect."""
    make, inputs = MODELS[name]
    torch.manual_seed(0)
    model = make().eval().requires_grad_(False)
    for key, value in model.state_dict().items():
        if value.is_floating_point():
            value.copy_(torch.rand(value.shape) + 0.5 if "var" in key else torch.randn(value.shape) * 0.3)
    return model, inputs()


def graph_of(name: str) -> Graph:
    """The graph with its arguments bound as the generation of the files did: parameters, buffers, inputs."""
    model, inputs = model_and_inputs(name)
    output = output_of(name)
    names = [*dict(model.named_parameters()), *dict(model.named_buffers())]
    arguments = [Argument(kind="weight", name=n) for n in names]
    arguments += [Argument(kind="input", index=i) for i in range(len(inputs))]
    n_answers = len(output.returns)
    return Graph(
        output=output,
        arguments=tuple(arguments),
        weights=weights_of(model),
        n_inputs=len(inputs),
        answer="{0}" if n_answers == 1 else "(" + ", ".join(f"{{{i}}}" for i in range(n_answers)) + ")",
        chosen={kernel: configurations(its)[0] for kernel, its in output.kernels.items()},
    )


def called(function: Callable[..., Any], *arguments: Any) -> list[Tensor]:
    answer = function(*arguments)
    return [answer] if isinstance(answer, Tensor) else list(answer)
