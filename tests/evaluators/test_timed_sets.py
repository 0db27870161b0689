"""Memory shared with a child, and the drawings that are timed in it, on the CPU: a region is bytes wherever it lies."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

from db.records import Problem, Workload
from evaluators.device_memory import Region
from evaluators.gpu_session import Slot
from evaluators.input_sets import ReferenceSets, list_sets
from evaluators.problems.reference import Reference
from evaluators.timed_sets import N_DRAWS, N_KEPT, SLOW_S, Draws, TimedSets

BAGS = """
import torch
import torch.nn as nn

rows = 16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(4))

    def forward(self, values, starts, factor):
        ends = torch.cat([starts[1:], starts.new_tensor([values.shape[0]])])
        assert starts[0] == 0
        return torch.stack([values[a:b].sum(0) for a, b in zip(starts, ends)]) * self.scale * factor


def get_inputs():
    return [torch.randn(rows, 4), torch.tensor([0, rows // 4, rows // 2]), 3]


def get_init_inputs():
    return []
"""
FULL = Workload(name="full", role="full")
SMALL = Workload(name="small", role="small", sizes={"rows": 8})
N_SETS = 10


def on_the_cpu(n_bytes: int, device: int) -> Region:
    return Region(torch.zeros(-(-n_bytes // 4096) * 4096, dtype=torch.uint8))


@pytest.fixture
def sets() -> ReferenceSets:
    problem = Problem(name="bags", kind="kernelbench", source=BAGS, workloads=(FULL, SMALL), seeds=(BAGS,))
    return ReferenceSets(problem, list_sets([SMALL, FULL], 5), "cpu", 1 << 24)


@pytest.fixture
def slot(sets: ReferenceSets) -> Slot:
    slot = Slot(sets, N_SETS, allocate=on_the_cpu)
    slot.reset()
    return slot


def draws_of(sets: ReferenceSets) -> Draws:
    return Draws(sets.references["full"], random.Random(1), "cpu", slow_s=60.0)


def drawn_of(sets: ReferenceSets, seed: int) -> torch.Tensor:
    return next(sets.drawn(s) for s in sets.sets if s.workload == FULL and s.seed == seed).inputs[0]


def test_timed_sets_lie_one_after_the_other_and_the_first_is_the_one_that_is_checked(sets, slot):
    starts = [slot.given(FULL, k)[0].data_ptr() for k in range(N_SETS)]
    assert {b - a for a, b in itertools.pairwise(starts)} == {slot.places["full"]["set_bytes"]}
    assert torch.equal(slot.given(FULL)[0], drawn_of(sets, 0)) and slot.given(FULL, 3)[0].isnan().all()
    slot.spread(FULL)
    assert all(torch.equal(slot.given(FULL, k)[0], drawn_of(sets, 0)) for k in range(N_SETS))
    assert slot.places["small"]["n_sets"] == 1 and slot.check_rest().passed


def test_every_set_holds_a_drawing_of_the_problem_that_was_not_checked(sets, slot):
    timed = TimedSets(sets, FULL, slot, draws_of(sets))
    timed.renew()
    values = [slot.given(FULL, k)[0].clone() for k in range(N_SETS)]
    assert len({v.sum().item() for v in values}) == N_DRAWS
    checked = [sets.drawn(s).inputs[0] for s in sets.sets if s.workload == FULL]
    assert not any(torch.equal(v, c) for v in values for c in checked)
    # whole numbers stay what they mean: offsets begin with zero and ascend, and the reference answers for every launch
    assert all(slot.given(FULL, k)[1].tolist() == [0, 4, 8] and slot.given(FULL, k)[2] == 3 for k in range(N_SETS))
    for launch in (0, 9, 13):
        drawn = timed.drawn(launch)
        assert torch.equal(drawn.inputs[0], values[launch % N_SETS]) and drawn.expected[0].shape == (3, 4)
    timed.renew()
    assert not any(torch.equal(slot.given(FULL, k)[0], values[k]) for k in range(N_SETS))


def test_the_same_drawings_can_be_written_again(sets, slot):
    timed = TimedSets(sets, FULL, slot, draws_of(sets))
    timed.renew()
    before = slot.given(FULL, 7)[0].clone()
    slot.given(FULL, 7)[0].zero_()
    assert not timed.check_inputs(7).passed and timed.check_inputs(6).passed
    timed.write()
    assert torch.equal(slot.given(FULL, 7)[0], before) and timed.check_inputs(7).passed


def test_a_weight_and_the_memory_between_tensors_are_compared(slot):
    weight = slot.inputs.tensor(slot.places["full"]["weights"]["scale"])
    weight[2] += 1
    assert "weight scale" in slot.check_rest().reason
    slot.reset()
    slot.inputs.bytes[slot.places["full"]["inputs"][0]["offset"] + 16 * 4 * 4] = 1
    assert "behind the end" in slot.check_rest().reason
    slot.reset()
    slot.outputs.bytes[-1] = 1
    assert "behind the end" in slot.check_rest().reason


def test_nothing_of_an_earlier_candidate_is_left_after_a_reset(slot):
    slot.outputs.bytes.fill_(7)
    slot.given(FULL, 4)[0].fill_(7.0)
    slot.reset()
    assert not (slot.outputs.bytes == 7).any() and slot.given(FULL, 4)[0].isnan().all()


def test_drawings_that_take_long_are_few_and_come_again():
    source = BAGS.replace(
        "    return [torch.randn", f"    __import__('time').sleep({2 * SLOW_S})\n    return [torch.randn"
    )
    problem = Problem(name="slow", kind="kernelbench", source=source, workloads=(FULL, SMALL), seeds=(source,))
    draws = Draws(Reference(problem, FULL), random.Random(1), "cpu")
    taken = [draws.take(N_DRAWS) for _ in range(N_KEPT + 2)]
    assert [len(some) for some in taken[:N_KEPT]] == [1] * N_KEPT
    values = {some[0][0].sum().item() for some in taken[:N_KEPT]}
    assert len(values) == N_KEPT and {one[0].sum().item() for some in taken[N_KEPT:] for one in some} <= values
    assert not torch.equal(taken[-1][0][0], taken[-2][-1][0])
