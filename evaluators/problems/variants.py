"""What is made of drawn inputs besides the inputs as drawn: other signs and sizes, rows far from zero, a NaN.

A floating tensor is *free* when it was drawn with both signs, or when the reference answers sign-flipped inputs as
well: then nothing says that its values are probabilities, variances or lengths.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

Variant = Literal["plain", "flipped", "scaled", "large", "tiny", "constant_rows", "negative", "one_nan"]
Adversarial = Literal["large", "tiny", "constant_rows", "negative", "one_nan"]
ADVERSARIAL: tuple[Adversarial, ...] = ("large", "tiny", "constant_rows", "negative", "one_nan")

SCALE = 8.0  # of "scaled"; a power of two changes no float but for its exponent
LARGE = 2.0**10
TINY = 2.0**-10
FAR = 8.0  # root mean squares
OFFSET = 128.0  # root mean squares that "constant_rows" moves away from zero: the spread is hardly seen beside it


def varied(inputs: Sequence[Any], variant: Variant, seed: int, *, is_any_free: bool = True) -> list[Any]:
    """The inputs in a variant. Values that are no floating tensors stay as they are.

    `flipped` and `scaled` change all floating tensors, the others free ones alone: `large` and `tiny` multiply them by
    2^10 and 2^-10, `negative` takes their magnitudes with a minus, `constant_rows` moves every row (all that shares an
    index of the first dimension) far away from zero, up or down, so that it is nearly constant, and `one_nan` puts a
    NaN into one element of one tensor.

    Args:
        seed: says where the NaN goes.
        is_any_free: whether every floating tensor counts as free; else those with both signs.
    """
    if variant == "plain":
        return list(inputs)
    if variant in ("flipped", "scaled"):
        factor = -1.0 if variant == "flipped" else SCALE
        return [value * factor if _is_floating(value) else value for value in inputs]
    free = [i for i, value in enumerate(inputs) if _is_floating(value) and (is_any_free or _has_both_signs(value))]
    if variant == "one_nan":
        return _with_nan(inputs, free, random.Random(seed))
    return [_changed(value, variant) if i in free else value for i, value in enumerate(inputs)]


def with_others(inputs: Sequence[Any], plain: Sequence[Any]) -> Iterator[list[Any]]:
    """The plain inputs, and twice the inputs with other numbers in the place of NaN: far above zero, far below."""
    yield list(plain)
    for far in (FAR, -FAR):
        yield [_replaced(value, far) if _is_floating(value) else value for value in inputs]


def _replaced(value: Tensor, far: float) -> Tensor:
    known = value.double().nan_to_num(0.0)
    return value.double().nan_to_num(float(far * known.square().mean().sqrt().item())).to(value.dtype)


def nudged(inputs: Sequence[Any], seed: int) -> list[Any]:
    """The inputs in float64, every element of a floating tensor up or down by the spacing of float32."""
    generator = torch.Generator().manual_seed(seed)
    return [_nudged(value, generator) if _is_floating(value) else value for value in inputs]


def _nudged(value: Tensor, generator: torch.Generator) -> Tensor:
    signs = torch.randint(0, 2, tuple(value.shape), generator=generator).to(value.device) * 2 - 1
    return value.double() * (1.0 + torch.finfo(torch.float32).eps * signs)


def _changed(value: Tensor, variant: Variant) -> Tensor:
    if variant == "large":
        return value * LARGE
    if variant == "tiny":
        return value * TINY
    return -value.abs() if variant == "negative" else _nearly_constant(value)


def _nearly_constant(value: Tensor) -> Tensor:
    """Every other index of the first dimension moved up by `OFFSET` root mean squares, the others down."""
    if not value.dim() or not value.numel():
        return value
    signs = 1.0 - 2.0 * (torch.arange(value.shape[0], device=value.device) % 2)
    offset = signs * OFFSET * value.float().square().mean().sqrt()
    return value + offset.to(value.dtype).reshape(-1, *[1] * (value.dim() - 1))


def _with_nan(inputs: Sequence[Any], free: Sequence[int], rng: random.Random) -> list[Any]:
    values = list(inputs)
    filled = [i for i in free if values[i].numel() and values[i].element_size() > 1]
    if filled:
        chosen = rng.choice(filled)
        values[chosen] = values[chosen].clone()
        place = tuple(rng.randrange(size) for size in values[chosen].shape)
        values[chosen][place] = float("nan")
    return values


def _is_floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _has_both_signs(value: Tensor) -> bool:
    return bool(((value < 0).any() & (value > 0).any()).item())
