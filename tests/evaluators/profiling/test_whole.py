from __future__ import annotations

import pytest

from db.profile import KernelProfile, Rule, Stall
from evaluators.profiling.errors import ProfileError
from evaluators.profiling.whole import combine

LONG = KernelProfile(
    kernel="long",
    duration_us=30.0,
    compute_sol_pct=10.0,
    memory_sol_pct=90.0,
    dram_read_bytes=300.0,
    n_registers=64,
    stalls=(Stall(reason="barrier", cycles=3.0, share=0.5),),
    rules=(Rule(name="A", section="S", message="m", speedup_pct=9.0),),
)
SHORT = KernelProfile(kernel="short", duration_us=10.0, compute_sol_pct=50.0, memory_sol_pct=10.0, dram_read_bytes=20.0)


def test_the_whole_sums_what_adds_up_and_weights_the_rest():
    whole = combine([SHORT, LONG])
    assert whole.source == "ncu" and whole.duration_us == 40.0 and whole.dram_read_bytes == 320.0
    assert whole.compute_sol_pct == pytest.approx(20.0) and whole.memory_sol_pct == pytest.approx(70.0)
    assert [k.kernel for k in whole.kernels] == ["short", "long"]


def test_resources_are_those_of_the_kernel_with_the_longest_total():
    whole = combine([LONG, *[SHORT.model_copy(update={"n_registers": 16})] * 4])
    assert whole.dominant == "short" and whole.n_registers == 16 and whole.stalls == ()
    assert combine([SHORT, LONG]).rules[0].name == "A"


def test_a_value_that_nobody_read_does_not_count_as_zero():
    unread = KernelProfile(kernel="unread", duration_us=1000.0)
    whole = combine([LONG, unread])
    assert whole.memory_sol_pct == 90.0 and whole.duration_us == 1030.0 and whole.l2_hit_pct is None


def test_without_durations_every_launch_counts_alike():
    kernels = [k.model_copy(update={"duration_us": None}) for k in (LONG, SHORT)]
    assert combine(kernels).memory_sol_pct == pytest.approx(50.0)


def test_what_has_no_speed_of_light_is_no_profile():
    with pytest.raises(ProfileError, match="speed of light"):
        combine([KernelProfile(kernel="k", duration_us=1.0)])
    with pytest.raises(ProfileError, match="no kernel"):
        combine([])
