"""Timers on a GPU: a graph where a program can be captured, events where it cannot, and neither spoils the next."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from evaluators.timing import GraphTimer, Rotation, call_us, open_timer

pytestmark = pytest.mark.gpu
L2_BYTES = 60 << 20


@pytest.fixture(autouse=True)
def own_stream() -> Iterator[None]:
    with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
        yield


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def double_and_wait(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    torch.cuda.synchronize()
    return y


def sets_of(n_sets: int) -> list[list[torch.Tensor]]:
    return [[torch.randn(4096, 4096, device="cuda")] for _ in range(n_sets)]


def test_a_graph_times_its_launches_and_computes_anew() -> None:
    sets = sets_of(2)
    timer, why = open_timer(double, sets, Rotation(2, 4, True), l2_bytes=L2_BYTES, watched=3)
    assert timer.method == "graph" and why == "" and timer.n_launches == 4
    times = timer.replay_us(5)
    # 134 MB moved: no GPU does it in 10 us, none takes 10 ms
    assert len(times) == 5 and all(10 < us < 10_000 for us in times)
    sets[1][0].fill_(21.0)
    timer.replay_us(1)
    assert (timer.outputs(3)[0] == 42.0).all() and (timer.outputs(1)[0] == 42.0).all()
    assert torch.equal(timer.outputs(2)[0], sets[0][0] * 2)
    per_launch_s = timer.sustain(10) / 40
    assert per_launch_s == pytest.approx(1e-6 * sorted(times)[2], rel=0.3)


def test_a_program_that_waits_is_timed_by_events_and_the_next_by_a_graph_again() -> None:
    sets = sets_of(2)
    timer, why = open_timer(double_and_wait, sets, Rotation(2, 4, True), l2_bytes=L2_BYTES, watched=1)
    assert timer.method == "events" and why
    events_us = sorted(timer.replay_us(9))[4]
    sets[1][0].fill_(3.0)
    assert (timer.outputs(1)[0] == 6.0).all() and torch.equal(timer.outputs(0)[0], sets[0][0] * 2)
    graph, why = open_timer(double, sets, Rotation(2, 4, True), l2_bytes=L2_BYTES, watched=0)
    assert graph.method == "graph", why
    # what waits costs its kernel and the wait
    graph_us = sorted(graph.replay_us(9))[4]
    assert 0.9 * graph_us < events_us < graph_us + 200


def test_events_can_be_asked_for() -> None:
    timer, why = open_timer(double, sets_of(1), Rotation(1, 4, True), l2_bytes=L2_BYTES, watched=0, method="events")
    assert timer.method == "events" and "asked for" in why and timer.n_launches == 1


def test_a_program_that_cannot_be_captured_is_an_error_where_the_graph_is_asked_for() -> None:
    with pytest.raises(RuntimeError):
        open_timer(double_and_wait, sets_of(1), Rotation(1, 2, True), l2_bytes=L2_BYTES, watched=0, method="graph")
    assert (double(torch.ones(3, device="cuda")) == 2).all()


def test_outputs_rotate_only_while_they_fit() -> None:
    sets = sets_of(1)
    before = torch.cuda.memory_allocated()
    kept = GraphTimer(double, sets, Rotation(1, 8, True), 0)
    with_all = torch.cuda.memory_allocated() - before
    del kept
    before = torch.cuda.memory_allocated()
    dropped = GraphTimer(double, sets, Rotation(1, 8, False), 0)
    with_one = torch.cuda.memory_allocated() - before
    assert dropped.n_launches == 8 and with_one < with_all / 4


def test_a_call_costs_at_least_its_kernel() -> None:
    sets = sets_of(2)
    device_us = sorted(GraphTimer(double, sets, Rotation(2, 4, True), 0).replay_us(5))[2]
    times, nothing = call_us(double, sets, n_calls=8, n_repeats=3)
    assert min(times) > 0.9 * device_us and nothing is None
    _, kept = call_us(double, sets, n_calls=4, n_repeats=1, kept=3)
    assert torch.equal(kept, sets[1][0] * 2)
