import random

import pytest

from evaluators.gates.speed import (
    Interval,
    is_clearly_slower,
    is_settled,
    median_interval,
    noise_margin,
    speed_gate,
)


def test_small_samples_give_their_extremes():
    assert median_interval([3.0]) == Interval(3.0, 3.0, 3.0)
    assert median_interval([5.0, 1.0, 3.0]) == Interval(3.0, 1.0, 5.0)


def test_the_interval_holds_the_median_95_times_in_100():
    rng = random.Random(1)
    for n in (6, 7, 15, 40):
        held = 0
        for _ in range(2000):
            interval = median_interval([rng.random() for _ in range(n)])
            held += interval.low <= 0.5 <= interval.high
        assert held / 2000 >= 0.94, n


def test_more_values_narrow_the_interval():
    values = [float(v) for v in range(101)]
    interval = median_interval(values)
    assert interval.median == 50 and 38 <= interval.low <= 41 and 59 <= interval.high <= 62


def test_no_values_are_an_error():
    with pytest.raises(ValueError, match="at least one"):
        median_interval([])


def test_short_kernels_need_a_larger_gain():
    assert noise_margin(2.0) > 0.1
    assert noise_margin(500.0) < 0.011


def test_a_first_look_ends_only_what_loses_to_both():
    assert is_clearly_slower(120.0, 100.0, None)
    assert not is_clearly_slower(105.0, 100.0, None)
    assert not is_clearly_slower(120.0, 100.0, 150.0)
    assert is_clearly_slower(120.0, 100.0, 50.0)


def test_settled_means_one_side_of_the_margin():
    assert is_settled([1.5] * 6, 0.01)
    assert is_settled([0.9] * 6, 0.01)
    assert not is_settled([0.99, 1.0, 1.01, 1.02, 1.03, 1.04], 0.01)


def test_the_gate_wants_a_gain_beyond_noise_and_a_cheap_call():
    faster = Interval(1.2, 1.15, 1.25)
    assert speed_gate(faster, 0.01, Interval(1.0, 0.99, 1.01), "compile").passed
    noise = speed_gate(Interval(1.02, 1.005, 1.03), 0.01, None, "compile")
    assert not noise.passed and "noise" in noise.reason and "compile" in noise.reason
    costly = speed_gate(faster, 0.01, Interval(1.2, 1.1, 1.3), "eager")
    assert not costly.passed and "host code" in costly.reason
