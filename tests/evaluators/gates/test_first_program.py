"""First programs: within 1e-4, or as exact as the reference against float64; where that is not known, no excuse."""

from __future__ import annotations

import pytest
import torch

from db.records import Gate, GateResult, Tolerance
from evaluators.gates.first_program import closer_bound, held_to_more, look_at
from evaluators.tolerances import tolerance_table

YES = GateResult(gate=Gate.MODEL, passed=True, evidence={"error_ratio": 2.0})
OWN = tolerance_table()["float32"]
WANTED = torch.linspace(-4.0, 4.0, 64)


def answer(error: float, *, has_exact: bool, own: Tolerance = OWN) -> GateResult:
    exact = WANTED.double() if has_exact else None
    return held_to_more(YES, look_at([WANTED + error], [WANTED], [own], [exact], "small workload, seed 42"))


@pytest.mark.parametrize("has_exact", [True, False])
def test_what_is_within_the_closer_bound_passes_and_says_so(has_exact: bool) -> None:
    found = answer(5e-5, has_exact=has_exact)
    assert found.passed and found.evidence["error_ratio"] == 2.0
    assert found.evidence["first_program"] == {"bound": 1e-4, "n_within": 1, "n_as_exact_as_the_reference": 0}


def test_what_is_further_away_passes_by_float64_alone() -> None:
    found = answer(9e-4, has_exact=True)
    assert found.passed and found.evidence["first_program"]["n_as_exact_as_the_reference"] == 1
    refused = answer(9e-4, has_exact=False)
    assert not refused.passed and refused.gate is Gate.MODEL
    for word in ("0.0001", "float64", "outside the tolerance", "seed 42"):
        assert word in refused.reason


def test_a_no_stays_a_no() -> None:
    no = GateResult(gate=Gate.MODEL, passed=False, reason="less exact than the reference")
    assert held_to_more(no, look_at([WANTED], [WANTED], [OWN], [None], "set")) == no


def test_the_bound_is_never_wider_than_the_problems_own_nor_finer_than_the_dtype() -> None:
    assert closer_bound(torch.float32, OWN) == Tolerance(rtol=1e-4, atol=1e-4)
    assert closer_bound(torch.float32, Tolerance(rtol=1e-5, atol=1e-7)) == Tolerance(rtol=1e-5, atol=1e-7)
    half = closer_bound(torch.float16, tolerance_table()["float16"])
    assert half.rtol == pytest.approx(2 * 2**-10) and half.atol == 1e-4
    assert closer_bound(torch.float64, tolerance_table()["float64"]).rtol == 1e-7


def test_whole_numbers_keep_their_own_tolerance() -> None:
    wanted = torch.arange(8, dtype=torch.int8)
    assert look_at([wanted + 1], [wanted], [tolerance_table()["int8"]], [None], "set") == []


def test_an_output_is_named_where_there_are_several() -> None:
    looks = look_at([WANTED, WANTED + 1], [WANTED, WANTED], [OWN, OWN], [None, None], "set")
    assert "output 1" in held_to_more(YES, looks).reason
