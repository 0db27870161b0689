"""Paired rounds of program and baseline: what they gain, and whether the judge's clock believes them."""

from __future__ import annotations

import pytest
import torch

from db.errors import DeviceError
from evaluators.gpu_judgement import Paired, is_out_of_memory
from evaluators.problems.module import telling_faults

WATCHED_S = [0.0083, 0.0082, 0.0084, 0.0480, 0.0083, 0.0082]  # 8 launches of a millisecond; one round was stalled
CONTROL_S = [0.0003] * 6


def test_claims_that_fit_the_clock_are_believed() -> None:
    rounds = Paired([1000.0] * 6, [1500.0] * 6, WATCHED_S, CONTROL_S)
    assert rounds.check(n_launches=8).passed
    assert rounds.gains == [1.5] * 6


@pytest.mark.parametrize("share", [0.1, 0.55, 0.8])
def test_a_claim_of_less_is_not(share: float) -> None:
    rounds = Paired([1000.0 * share] * 6, [1500.0] * 6, WATCHED_S, CONTROL_S)
    assert not rounds.check(n_launches=8).passed


def test_a_claim_of_more_time_than_passed_is_not_either() -> None:
    assert not Paired([1100.0] * 6, [1500.0] * 6, WATCHED_S, CONTROL_S).check(n_launches=8).passed


def test_lies_in_most_rounds_are_seen_through_honest_ones() -> None:
    rounds = Paired([1000.0, 100.0, 100.0, 100.0, 100.0, 1000.0], [1500.0] * 6, WATCHED_S, CONTROL_S)
    assert not rounds.check(n_launches=8).passed


def test_a_reference_that_finds_no_memory_beside_a_program_is_told_from_other_faults() -> None:
    with pytest.raises(DeviceError) as found, telling_faults("p", "forward"):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    assert is_out_of_memory(found.value) and is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_out_of_memory(DeviceError("the baseline's process is lost", "see `evolve doctor`"))
