import math

import pytest
import torch

from db.records import Tolerance
from evaluators.gates import correctness

STRICT = Tolerance(rtol=1e-3, atol=1e-3)


def test_equal_outputs_pass():
    x = torch.randn(7, 5)
    assert correctness.compare(x.clone(), x, STRICT) is None


def test_one_wrong_element_is_found_counted_and_placed():
    expected = torch.zeros(3, 4, 5)
    actual = expected.clone()
    actual[1, 2, 3] = 0.25
    found = correctness.compare(actual, expected, STRICT)
    assert found is not None
    assert (found.n_wrong, found.n_elements, found.place) == (1, 60, (1, 2, 3))
    assert found.worst_error == pytest.approx(0.25)
    assert "1 of 60 elements" in found.describe() and "(1, 2, 3)" in found.describe()


def test_chunks_are_joined(monkeypatch):
    monkeypatch.setattr(correctness, "CHUNK", 16)
    expected = torch.zeros(100)
    actual = expected.clone()
    actual[[3, 70]] = torch.tensor([0.5, -2.0])
    found = correctness.compare(actual, expected, STRICT)
    assert found is not None and found.n_wrong == 2 and found.place == (70,) and found.actual == -2.0


@pytest.mark.parametrize(
    ("actual", "expected", "is_right"),
    [
        (math.nan, math.nan, True),
        (math.nan, 1.0, False),
        (1.0, math.nan, False),
        (math.inf, math.inf, True),
        (-math.inf, math.inf, False),
        (3.0e38, math.inf, False),
        (math.inf, 1.0, False),
        (1.0 + 1.9e-3, 1.0, True),
        (1.0 + 2.1e-3, 1.0, False),
    ],
)
def test_special_values_and_the_edge_of_the_bound(actual, expected, is_right):
    found = correctness.compare(torch.tensor([actual]), torch.tensor([expected]), STRICT)
    assert (found is None) is is_right


def test_misplaced_nans_are_named():
    found = correctness.compare(torch.tensor([math.nan, 1.0]), torch.tensor([0.0, 1.0]), STRICT)
    assert found is not None and found.nan_mismatch == 1 and "NaN" in found.describe()


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64, torch.bool, torch.float16, torch.bfloat16])
def test_other_dtypes_are_compared_without_overflow(dtype):
    expected = torch.tensor([0, 1, 1], dtype=dtype)
    assert correctness.compare(expected.clone(), expected, STRICT) is None
    wrong = torch.tensor([1, 1, 1], dtype=dtype)
    found = correctness.compare(wrong, expected, STRICT)
    assert found is not None and found.n_wrong == 1


def test_int8_extremes_differ_by_255():
    low, high = torch.tensor([-128], dtype=torch.int8), torch.tensor([127], dtype=torch.int8)
    found = correctness.compare(low, high, Tolerance(rtol=1e-6, atol=1.0))
    assert found is not None and found.worst_error == 255


def test_empty_and_scalar_outputs():
    assert correctness.compare(torch.empty(0, 3), torch.empty(0, 3), STRICT) is None
    found = correctness.compare(torch.tensor(2.0), torch.tensor(1.0), STRICT)
    assert found is not None and found.place == ()


def test_an_infinite_excess_is_not_taken_for_close():
    """Expected infinity makes both sides of the bound infinite: only the close look can tell."""
    expected = torch.tensor([math.inf, 1.0])
    assert correctness.compare(torch.tensor([math.inf, 1.0]), expected, STRICT) is None
    assert correctness.compare(torch.tensor([0.0, 1.0]), expected, STRICT) is not None
    assert correctness.compare(torch.tensor([math.nan, 1.0]), expected, STRICT) is not None
