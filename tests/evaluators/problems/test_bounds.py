"""Whether a bound tells wrong answers from an answer, and which bound does."""

import torch
from torch import Tensor

from db.records import Tolerance
from evaluators.problems.bounds import root_mean_square, too_wide

TABLE = Tolerance(rtol=1e-3, atol=1e-3)
GENERATOR = torch.Generator().manual_seed(0)


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=GENERATOR)


def mutant(expected: Tensor, bound: Tolerance = TABLE, *inputs: Tensor, error: float = 0.0) -> str:
    found = too_wide(expected, inputs, bound, error)
    return found.mutant if found is not None else ""


def test_answers_of_order_one_are_told_apart() -> None:
    assert mutant(drawn(20, 30), TABLE, drawn(20, 30)) == ""
    for dtype in (torch.float16, torch.float8_e4m3fn, torch.complex64):
        assert mutant(drawn(20, 30).to(dtype), Tolerance(rtol=1e-2, atol=1e-2)) == ""


def test_zeros_pass_for_small_answers_and_the_bound_follows_their_size() -> None:
    expected = drawn(20, 30) * 1e-4
    found = too_wide(expected, [], TABLE)
    assert found is not None and found.mutant == "zeros"
    assert found.tighter == Tolerance(rtol=1e-3, atol=1e-3 * root_mean_square(expected))


def test_other_answers_without_work() -> None:
    about_half = 0.5 + drawn(20, 30) * 1e-4
    assert mutant(about_half) == ""  # constant to within what the relative part leaves
    assert mutant(drawn(20, 30) * 1e-4 + 0.05, Tolerance(rtol=1e-5, atol=1e-3)) == "its mean everywhere"
    x = drawn(20, 30) * 0.1
    assert mutant(x + drawn(20, 30) * 2e-4, Tolerance(rtol=1e-5, atol=1e-3), x) == "the first input"
    rows = torch.ones(3, 4) * torch.tensor([0.2, 8e-4, 0.0])[:, None]
    assert mutant(rows, Tolerance(rtol=1e-5, atol=1e-3)) == "all but one row"
    assert mutant(drawn(20, 30) * 0.05) == "an answer that is a thousandth off"


def test_no_bound_shrinks_under_what_the_reference_loses() -> None:
    found = too_wide(drawn(20, 30) * 1e-4, [], TABLE, error=1e-6)
    assert found is not None and found.tighter.atol == 16e-6
    assert too_wide(drawn(20, 30) * 1e-7, [], TABLE, error=1e-4) is None  # nothing but rounding


def test_constant_answers_are_not_held_against_a_problem() -> None:
    for constant in (torch.zeros(4, 4), torch.ones(4, 4), torch.zeros(4, 4, dtype=torch.bool), torch.tensor(0.0)):
        assert mutant(constant) == ""


def test_a_mask_is_told_from_zeros() -> None:
    mask = torch.tensor([0, 1, 1, 0], dtype=torch.uint8)
    found = too_wide(mask, [], Tolerance(rtol=1e-9, atol=1.0))
    assert found is not None and found.tighter.atol == 0.5
    assert mutant(torch.arange(9, dtype=torch.int8), Tolerance(rtol=1e-9, atol=1.0)) == ""


def test_every_dtype_has_its_zeros() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.float64):
        assert mutant((drawn(20, 30) * 0.01).to(dtype), Tolerance(rtol=1e-4, atol=0.1)) == "zeros"


def test_answers_that_are_not_finite_say_nothing() -> None:
    assert mutant(torch.tensor([float("inf"), 1e-9])) == "" and mutant(torch.empty(0)) == ""
