"""single_exponential and exp2 in the softmax that Inductor writes: rows with masked and infinite values too."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from support.compiling import interpret_all
from support.parents import kernel_sources, parent_of

from islands.operators.structural.exp2 import Exp2
from islands.operators.structural.single_exponential import SingleExponential

SOURCES = kernel_sources()
SOFTMAX = SOURCES["inductor_softmax"]
# one row of minus infinity alone, one that begins and ends with it, one with plus infinity, one with NaN
EXTREME = SOFTMAX.replace(
    "    return [torch.randn(4, 1500)]",
    '    x = torch.randn(4, 1500)\n    x[0] = x[1, :600] = x[1, 1400:] = float("-inf")\n'
    '    x[2, 700], x[3, 5] = float("inf"), float("nan")\n    return [x]',
)


def test_applies_to_online_softmax_of_inductor() -> None:
    found = {n for n, s in SOURCES.items() if SingleExponential().propose([parent_of(s)], random.Random(0))}
    assert found == {"inductor_softmax", "inductor_log_softmax", "inductor_masked_softmax"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("lhs_sum * lhs_scale + rhs_scale", "lhs_sum * lhs_scale + 2 * rhs_scale"),
        ("inductor_exp(rhs_max - out_max", "inductor_exp(out_max - rhs_max"),
        ("tl.where(\n        out_max", "tl.where(\n        rhs_max"),
    ],
)
def test_another_recurrence_is_left_alone(before: str, after: str) -> None:
    assert before in SOFTMAX
    source = SOFTMAX.replace(before, after)
    assert SingleExponential().propose([parent_of(source)], random.Random(0)) is None


def test_gives_the_same_with_infinities_and_nan() -> None:
    proposal = SingleExponential().propose([parent_of(EXTREME)], random.Random(0))
    powers = {p.source for seed in range(12) if (p := Exp2().propose([parent_of(SOFTMAX)], random.Random(seed)))}
    assert proposal is not None and len(powers) >= 3  # in the kernel, and in a function that a function of it calls
    extreme, changed, plain, *others = interpret_all([EXTREME, proposal.source, SOFTMAX, *sorted(powers)])
    rows = [extreme[0][1500 * i : 1500 * (i + 1)] for i in range(4)]
    assert all(math.isnan(v) for i in (0, 2, 3) for v in rows[i]) and sum(rows[1]) == pytest.approx(1.0)
    assert _agree(extreme, changed) and all(_agree(plain, other) for other in others)


def _agree(expected: Any, found: Any) -> bool:
    assert isinstance(expected, list) and isinstance(found, list), (expected, found)
    pairs = zip(expected[0], found[0], strict=True)
    return all(math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-8) or (a != a and b != b) for a, b in pairs)
