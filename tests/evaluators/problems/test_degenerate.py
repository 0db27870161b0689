"""Degenerate problems are told from what their reference answers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from evaluators.decomposition.job import _degeneracy as looked_at
from evaluators.problems import load_problem
from evaluators.problems.degenerate import degeneracy, degeneracy_of, is_unchanged
from evaluators.problems.reference import Reference

X = torch.randn(8, 32, generator=torch.Generator().manual_seed(0))
MODEL = """\
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return {answer}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


def reason_of(answer: str, tmp_path: Path, inputs: str = "torch.randn(8, 32)") -> str:
    path = tmp_path / "mine.py"
    path.write_text(MODEL.format(answer=answer, inputs=inputs))
    problem = load_problem(str(path))
    return degeneracy_of(Reference(problem, problem.full), "cpu")


@pytest.mark.parametrize(
    ("outputs", "said"),
    [
        ([X.exp()], ""),
        ([torch.full((64,), 0.5)], "an output is constant"),
        ([torch.full((64,), 0.5) + 1e-5 * torch.rand(64)], "an output is constant"),
        ([1e-8 * X], "an output is constant"),  # what is left of sums that cancel
        ([1e-5 * X.exp()], ""),  # small, but no noise: a softmax over many columns
        ([X + 1e-5], "an output repeats input 0"),
        ([X.view(32, 8)], "an output repeats input 0 in another shape"),
        ([X.t().contiguous()], ""),
        ([X.mean()], ""),  # a loss: one answer does not say whether it follows its inputs
        ([X[:0]], "an output is empty"),
        ([], "it answers with no tensor"),
        ([X[:0], X.mean()], ""),
        ([X.mean() * torch.inf], "an output holds no finite number"),
        ([X.clone(), X.exp()], ""),  # one of them is work
        ([torch.ones(64, dtype=torch.bool)], "an output is constant"),
        ([X.argsort()], ""),
        ([torch.where(X > 0, torch.inf, X)], ""),
        ([torch.fft.fft(X)], ""),
    ],
)
def test_one_answer_by_itself(outputs: list[torch.Tensor], said: str) -> None:
    assert degeneracy([X], outputs) == said


def test_answers_are_compared_within_the_tolerance() -> None:
    assert is_unchanged([X], [X + 1e-4])
    assert not is_unchanged([X], [X + 1e-2])
    assert not is_unchanged([X], [X[:4]])
    assert not is_unchanged([X], [torch.full_like(X, torch.nan)])


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("torch.softmax(x, dim=1)", ""),
        ("torch.arange(64.0) * (x.shape[0] + 0 * x.sum())", "its outputs do not follow its inputs"),
        ("torch.clamp(x, max=-50.0)", "an output is constant"),
        ("x.clone()", "an output repeats input 0"),
    ],
)
def test_a_module_is_run_on_two_draws(answer: str, said: str, tmp_path: Path) -> None:
    assert reason_of(answer, tmp_path) == said


@pytest.mark.parametrize(
    "loss",
    [
        "nn.functional.cross_entropy(x, torch.arange(8))",
        "nn.functional.kl_div(x[:4].log_softmax(1), x[4:].softmax(1), reduction='batchmean')",
        "nn.functional.mse_loss(x[:4], x[4:])",
        "(x.mean(), x.square().mean())",
    ],
)
def test_a_loss_of_one_number_is_a_problem_like_any_other(loss: str, tmp_path: Path) -> None:
    assert reason_of(loss, tmp_path) == ""


def test_a_mean_that_is_the_same_on_every_draw_is_work_where_it_follows_other_inputs(tmp_path: Path) -> None:
    many = "torch.rand(1024, 2048)"
    draws = [torch.rand(1024, 2048, generator=torch.Generator().manual_seed(n)).mean() for n in (0, 1)]
    assert is_unchanged(draws[:1], draws[1:])
    assert reason_of("x.mean()", tmp_path, many) == ""


@pytest.mark.parametrize(
    "answer",
    [
        "torch.sigmoid(nn.functional.layer_norm(x, (32,)).mean())",
        "0 * x.sum() + 0.7",
        "0 * x.log().sum() + 0.7",  # not to be had for flipped inputs
        "(0 * x.sum(), x.sum() * 0 + 2.0)",
    ],
)
def test_one_number_that_does_not_follow_its_inputs_says_little(answer: str, tmp_path: Path) -> None:
    assert reason_of(answer, tmp_path, "torch.rand(8, 32)") == "its outputs do not follow its inputs"


def test_inputs_that_are_never_drawn_are_varied_instead(tmp_path: Path) -> None:
    fixed = "torch.linspace(1.0, 2.0, 64)"
    assert reason_of("x.square()", tmp_path, fixed) == ""
    assert reason_of("torch.arange(64.0) + 0 * x", tmp_path, fixed) == "its outputs do not follow its inputs"
    assert (
        reason_of("torch.arange(64.0) + x", tmp_path, "1.5")
        == "it takes no tensor, so that its answer is always the same"
    )


def test_small_values_that_are_no_remains_of_sums_are_looked_at_as_any_others() -> None:
    """As softmax over a million columns has them."""
    draws = [torch.softmax(torch.rand(2, 1 << 20, generator=torch.Generator().manual_seed(n)), -1) for n in (0, 1)]
    assert float(draws[0].max() - draws[0].min()) < 1.1e-6
    assert degeneracy([], [draws[0]]) == "" and not is_unchanged([draws[0]], [draws[1]])
    remains = 1e-8 * torch.randn(64, generator=torch.Generator().manual_seed(0))
    assert degeneracy([], [remains]) == "an output is constant" and is_unchanged([remains], [-remains])


class TooLarge(Reference):
    """Its inputs fit in memory, and what is made of them does not."""

    def draw_inputs(self, *_: object) -> list[torch.Tensor]:
        raise torch.OutOfMemoryError("tried to allocate 80 GiB")


def test_a_model_too_large_to_be_looked_at_is_taken_apart_all_the_same() -> None:
    problem = load_problem("softmax")
    assert looked_at(TooLarge(problem, problem.full)) is None
