"""What is made of drawn inputs: magnitudes, signs, rows far from zero, one NaN; and what is left alone."""

import pytest
import torch
from torch import Tensor

from evaluators.problems.variants import ADVERSARIAL, OFFSET, Variant, nudged, varied

SIGNED = torch.linspace(-2.0, 2.0, 12).reshape(4, 3)
POSITIVE = SIGNED.abs() + 0.5
LABELS = torch.arange(4)


def of(variant: Variant, *inputs: object, is_any_free: bool = False) -> list[Tensor]:
    return varied(inputs, variant, 3, is_any_free=is_any_free)


@pytest.mark.parametrize("variant", ADVERSARIAL)
def test_labels_and_values_of_one_sign_stay_unless_their_flip_is_taken(variant: Variant) -> None:
    positive, labels, number = of(variant, POSITIVE, LABELS, 3)
    assert torch.equal(positive, POSITIVE) and torch.equal(labels, LABELS) and number == 3
    assert not torch.equal(of(variant, POSITIVE, is_any_free=True)[0], POSITIVE)


def test_magnitudes_and_signs() -> None:
    assert torch.equal(of("large", SIGNED)[0], SIGNED * 1024) and torch.equal(of("tiny", SIGNED)[0], SIGNED / 1024)
    assert torch.equal(of("negative", SIGNED)[0], -SIGNED.abs())


def test_nearly_constant_rows_keep_their_spread_far_from_zero() -> None:
    (x,) = of("constant_rows", SIGNED.reshape(4, 3, 1))
    away = OFFSET * SIGNED.square().mean().sqrt()
    means = x.reshape(4, 3).mean(dim=1)
    assert torch.equal(means > 0, torch.tensor([True, False, True, False]))
    assert bool(((means.abs() - away).abs() < 2).all()) and bool((x.std(dim=1) > 0).all())
    assert x.dtype == SIGNED.dtype and of("constant_rows", SIGNED.half())[0].dtype == torch.float16


def test_one_nan_is_in_one_tensor_and_the_given_one_is_not_touched() -> None:
    made = of("one_nan", SIGNED, SIGNED.clone(), LABELS)
    assert sum(int(value.isnan().sum()) for value in made[:2]) == 1 and not SIGNED.isnan().any()
    again = of("one_nan", SIGNED, SIGNED.clone(), LABELS)
    assert all(torch.equal(a.isnan(), b.isnan()) for a, b in zip(made, again, strict=True))


def test_a_nudge_is_the_last_bit_of_float32() -> None:
    (moved, labels) = nudged([SIGNED, LABELS], 1)
    assert moved.dtype == torch.float64 and labels is LABELS
    share = (moved / SIGNED.double() - 1).abs()
    assert bool(((share > 1e-7) & (share < 2e-7)).all())
