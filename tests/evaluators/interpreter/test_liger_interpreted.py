"""Kernels that nobody wrote for us: forward functions of liger-kernel under the interpreter, against torch."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch.nn import functional

from evaluators.interpreter.run import PRELOAD, interpret
from evaluators.sandbox import Zygote
from evaluators.sandbox.tensors import spec_of

pytest.importorskip("liger_kernel")

N_ROWS, N_COLUMNS = 4, 96


class Case(NamedTuple):
    """A module and a function of liger-kernel, how it is called, and what torch says."""

    module: str
    function: str
    arguments: str  # in terms of x[0], x[1], ...
    make: Callable[[], list[torch.Tensor]]
    expected: Callable[..., Any]
    pick: str = ""  # which of its results


def signed() -> torch.Tensor:
    return torch.randn(N_ROWS, N_COLUMNS)


def row() -> torch.Tensor:
    return torch.randn(N_COLUMNS)


def log_probabilities() -> torch.Tensor:
    return signed().log_softmax(-1)


def normalised(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def sparsemax(x: torch.Tensor) -> torch.Tensor:
    ranked = x.sort(dim=-1, descending=True).values
    ranks = torch.arange(1, x.shape[-1] + 1)
    sums = ranked.cumsum(-1) - 1
    support = (ranks * ranked > sums).sum(-1, keepdim=True)
    return torch.clamp(x - sums.gather(-1, support - 1) / support, min=0)


def jsd(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    mean = ((p.exp() + q.exp()) / 2).log()
    return (functional.kl_div(mean, p, reduction="batchmean", log_target=True) / 2) + (
        functional.kl_div(mean, q, reduction="batchmean", log_target=True) / 2
    )


def rotated(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> list[torch.Tensor]:
    def turn(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return x * cos[:, None] + torch.cat((-second, first), dim=-1) * sin[:, None]

    return [turn(q), turn(k)]


def rope_inputs() -> list[torch.Tensor]:
    angles = torch.outer(torch.arange(6.0), torch.rand(8)).repeat(1, 2)[None]
    heads = (torch.randn(1, 6, n, 16).transpose(1, 2) for n in (2, 1))  # as a projection leaves them
    return [*heads, angles.cos(), angles.sin()]


def attended(scores: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    probabilities = scores.masked_fill(future, -1e9).softmax(-1)
    return functional.conv2d(probabilities, weight, bias, padding=1).masked_fill(future, 0.0)


def poly_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return sum(w * normalised(x**n) for w, n in zip(weight, (3, 2, 1), strict=True)) + bias


CASES = [
    Case("softmax", "LigerSoftmaxFunction", "x[0]", lambda: [signed()], lambda x: x.softmax(-1)),
    Case(
        "cross_entropy",
        "LigerCrossEntropyFunction",
        "x[0], x[1], None",
        lambda: [signed(), torch.randint(N_COLUMNS, (N_ROWS,))],
        functional.cross_entropy,
        "[0]",
    ),
    Case(
        "rms_norm",
        "LigerRMSNormFunction",
        "x[0], x[1], 1e-6",
        lambda: [signed(), row()],
        lambda x, w: normalised(x) * w,
    ),
    Case(
        "layer_norm",
        "LigerLayerNormFunction",
        "x[0], x[1], x[2], 1e-5",
        lambda: [signed(), row(), row()],
        lambda x, w, b: functional.layer_norm(x, (N_COLUMNS,), w, b),
    ),
    Case(
        "group_norm",
        "LigerGroupNormFunction",
        "x[0], x[1], x[2], 6, 3, 1e-5",
        lambda: [torch.randn(2, 6, 20), torch.randn(6), torch.randn(6)],
        lambda x, w, b: functional.group_norm(x, 3, w, b),
    ),
    Case(
        "swiglu",
        "LigerSiLUMulFunction",
        "x[0], x[1]",
        lambda: [signed(), signed()],
        lambda a, b: functional.silu(a) * b,
    ),
    Case(
        "geglu",
        "LigerGELUMulFunction",
        "x[0], x[1]",
        lambda: [signed(), signed()],
        lambda a, b: functional.gelu(a, approximate="tanh") * b,
    ),
    Case("rope", "LigerRopeFunction", "x[0].clone(), x[1].clone(), x[2], x[3]", rope_inputs, rotated),
    Case(
        "kl_div",
        "LigerKLDivLossFunction",
        "x[0], x[1]",
        lambda: [log_probabilities(), signed().softmax(-1)],
        lambda p, q: functional.kl_div(p, q, reduction="batchmean"),
    ),
    Case("jsd", "LigerJSDFunction", "x[0], x[1]", lambda: [log_probabilities(), log_probabilities()], jsd),
    Case(
        "tvd",
        "LigerTVDLossFunction",
        "x[0], x[1]",
        lambda: [signed().softmax(-1), signed().softmax(-1)],
        lambda p, q: (p - q).abs().sum() / 2 / N_ROWS,
    ),
    Case(
        "dyt",
        "LigerDyTFunction",
        "x[0], x[1], x[2], x[3]",
        lambda: [signed(), torch.tensor([0.7]), row(), row()],
        lambda x, alpha, gamma, beta: torch.tanh(alpha * x) * gamma + beta,
    ),
    Case(
        "fused_add_rms_norm",
        "LigerFusedAddRMSNormFunction",
        "x[0], x[1], x[2], 1e-6",
        lambda: [signed(), signed(), row()],
        lambda x, r, w: [normalised(x + r) * w, x + r],
    ),
    Case("sparsemax", "LigerSparsemaxFunction", "x[0], -1", lambda: [signed()], sparsemax),
    Case(
        "multi_token_attention",
        "LigerMultiTokenAttentionFunction",
        "x[0], x[1], x[2], 1, 1",
        lambda: [torch.randn(1, 2, 8, 8), torch.randn(2, 2, 3, 3), torch.randn(2)],
        attended,
    ),
    Case(
        "poly_norm",
        "LigerPolyNormFunction",
        "x[0], x[1], x[2]",
        lambda: [signed(), torch.randn(3), torch.randn(1)],
        poly_norm,
    ),
]


@pytest.fixture(scope="module")
def liger_zygote() -> Iterator[Zygote]:
    """The modules are imported once, and after the shims: they bind functions of libdevice by name."""
    modules = [f"liger_kernel.ops.{case.module}" for case in CASES]
    with Zygote(interpret=True, preload=[*reversed(PRELOAD), *modules]) as zygote:
        yield zygote


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.module)
def test_it_agrees_with_torch(liger_zygote: Zygote, case: Case) -> None:
    torch.manual_seed(0)
    inputs = case.make()
    answer = case.expected(*inputs)
    expected = answer if isinstance(answer, list) else [answer]
    result = interpret(
        liger_zygote,
        source=(
            f"from liger_kernel.ops.{case.module} import {case.function}\n"
            f"def kernel_function(*x):\n    return {case.function}.apply({case.arguments}){case.pick}\n"
        ),
        entry_point="kernel_function",
        init_args=[],
        weights={},
        inputs=inputs,
        output_specs=[spec_of(tensor) for tensor in expected],
        deadline_s=60,
    )
    assert result.outputs is not None, result
    for got, wanted in zip(result.outputs, expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
