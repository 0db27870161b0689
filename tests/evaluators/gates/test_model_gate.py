import pytest
import torch

from db.records import PrecisionClass
from evaluators.gates.model_gate import ReferenceError64, exactness, max_abs_error, model_gate, reference_error

REFERENCE, RELAXED = PrecisionClass.REFERENCE, PrecisionClass.RELAXED


@pytest.mark.parametrize(
    ("d_opt", "d_ref", "largest", "precision"),
    [
        (9.9e-6, 1e-6, 10.0, REFERENCE),
        (1.1e-5, 1e-6, 10.0, RELAXED),
        (5e-3, 1e-6, 1.0, RELAXED),
        (5.1e-3, 1e-6, 1.0, None),
        (9e-2, 1e-6, 100.0, RELAXED),  # 1e-3 of the largest value
        (1e-9, 0.0, 1e-4, REFERENCE),
        (1e-4, 0.0, 0.5, RELAXED),
        (0.0, 0.0, 0.0, REFERENCE),
    ],
)
def test_classes_follow_the_ratio_then_the_absolute_bound(d_opt, d_ref, largest, precision):
    assert exactness(d_opt, ReferenceError64(d_ref, largest)).precision is precision


def test_the_error_is_taken_in_float64():
    exact = torch.tensor([1.0 + 1e-12, 2.0], dtype=torch.float64)
    assert max_abs_error(torch.tensor([1.0, 2.0]), exact) == pytest.approx(1e-12, rel=1e-3)


def test_errors_where_the_exact_value_is_infinite_do_not_count():
    exact = torch.tensor([float("inf"), float("nan"), 1.0], dtype=torch.float64)
    assert max_abs_error(torch.tensor([1.0, 1.0, 1.5]), exact) == 0.5
    assert reference_error(torch.tensor([float("inf"), 0.0, -3.0]), exact).largest == 3.0


def test_a_tf32_product_is_relaxed_and_refused_where_reference_is_asked_for():
    torch.manual_seed(0)
    a, b = torch.randn(64, 2048), torch.randn(2048, 64)
    exact = a.double() @ b.double()
    reference = reference_error(a @ b, exact)

    def tf32(x):
        return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)

    found = [exactness(max_abs_error(tf32(a) @ tf32(b), exact), reference)]
    refused, ratio = model_gate(found, REFERENCE)
    assert not refused.passed and ratio is not None and ratio > 10 and "precision class relaxed" in refused.reason
    # with an absolute bound of 1e-3 of the largest value
    allowed, _ = model_gate([exactness(0.5 * reference.largest * 1e-3, reference)], RELAXED)
    assert allowed.passed and allowed.evidence["precision"] == "relaxed"


def test_a_lucky_rounding_of_the_reference_is_not_held_against_others():
    exact = torch.tensor(9.38 + 2e-8, dtype=torch.float64)
    lucky = reference_error(torch.tensor(9.38), torch.tensor(9.38).double() + 2e-8)
    neighbour = torch.nextafter(torch.tensor(9.38), torch.tensor(10.0))
    assert lucky.d_ref == pytest.approx(2e-8, rel=1e-3)
    assert exactness(max_abs_error(neighbour, exact), lucky).precision is REFERENCE
    tf32_like = torch.tensor(9.38 * (1 + 2**-11))
    assert exactness(max_abs_error(tf32_like, exact), lucky).precision is RELAXED


def test_without_float64_the_comparison_alone_decides():
    result, ratio = model_gate([], REFERENCE)
    assert result.passed and ratio is None


def test_the_worst_output_counts():
    fine, off = ReferenceError64(1e-6, 1.0), ReferenceError64(1e-6, 1.0)
    result, ratio = model_gate([exactness(1e-6, fine), exactness(1.0, off)], RELAXED)
    assert not result.passed and ratio == pytest.approx(1e6) and "every bound" in result.reason


def test_an_output_without_elements_has_no_error() -> None:
    nothing = torch.empty(0, 4)
    assert reference_error(nothing, nothing.double()) == (0.0, 0.0, 0.0)
