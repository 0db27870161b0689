"""Outputs must be laid out as the reference's, in memory of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from evaluators.gates.layout import borrowed_outputs, misfit
from evaluators.sandbox.tensors import spec_of


def of(*outputs: torch.Tensor) -> list[Any]:
    return [spec_of(output) for output in outputs]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (torch.empty(3, 4), torch.empty(3, 4)),
        (torch.empty(4, 3).t(), torch.empty(4, 3).t()),
        (torch.empty(3, 4), torch.empty(4, 3).t()),  # row-major is always right
        (torch.empty(1, 5).t(), torch.empty(5, 1)),  # a dimension of size one is never walked
        (torch.empty(2, 3).t()[:, :1], torch.empty(3, 1)),
        (torch.empty(0, 4).t(), torch.empty(4, 0)),
        (torch.empty_strided((1,), (7,)), torch.empty(1)),
        (torch.tensor(1.0), torch.tensor(2.0)),
        (torch.empty(3, 4), torch.empty(1, 4).expand(3, 4)),  # the reference's is not dense: nothing is asked
        (torch.empty(3, 4), torch.empty(3, 8)[:, :4]),
        (torch.empty(4, 3).t(), torch.empty(3, 8)[:, :4]),
    ],
)
def test_what_fits(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert misfit([found], of(expected)) == ""


@pytest.mark.parametrize(
    ("found", "expected", "reason"),
    [
        (torch.empty(4, 3).t(), torch.empty(3, 4), r"output 0: strides (1, 3) instead of (4, 1)"),
        (
            torch.empty(2, 4, 3).mT,
            torch.empty(3, 2, 4).transpose(0, 1),
            r"output 0: strides (12, 1, 3) instead of (4, 8, 1)",
        ),
        (torch.empty(1).expand(3), torch.empty(3), r"output 0: strides (0,) instead of (1,)"),
        (torch.empty(3, 8)[:, :4], torch.empty(3, 4), r"output 0: strides (8, 1) instead of (4, 1)"),
        (torch.empty(3), torch.empty(4), r"output 0: shape (3,) instead of (4,)"),
        (torch.empty(3).half(), torch.empty(3), r"output 0: torch.float16 instead of torch.float32"),
        (nn.Parameter(torch.empty(3)), torch.empty(3), r"output 0: a Parameter instead of a torch.Tensor"),
    ],
)
def test_what_does_not_fit(found: torch.Tensor, expected: torch.Tensor, reason: str) -> None:
    assert misfit([found], of(expected)) == reason


def test_a_spec_without_strides_is_row_major() -> None:
    spec = spec_of(torch.empty(2, 3, 4)).model_copy(update={"strides": ()})
    assert misfit([torch.empty(2, 3, 4)], [spec]) == ""
    assert "instead of (12, 4, 1)" in misfit([torch.empty(4, 3, 2).permute(2, 1, 0)], [spec])


def test_the_number_of_outputs() -> None:
    assert misfit([torch.empty(1)], of(torch.empty(1), torch.empty(1))) == "1 outputs instead of 2"


def test_an_output_in_the_memory_of_an_input_is_refused_unless_the_reference_does_so() -> None:
    x, own = torch.empty(8), torch.empty(4)
    found = [own, x[4:]]
    assert borrowed_outputs(found, [3, x]) == (1,)
    assert "output 1: it lies in the memory of an input" in misfit(found, of(own, own), [x])
    assert misfit(found, of(own, own), [x], borrowed=(1,)) == ""
    assert misfit([own], of(own), [x]) == ""


def test_an_empty_output_borrows_nothing() -> None:
    x = torch.empty(0)
    assert borrowed_outputs([x], [x]) == ()
