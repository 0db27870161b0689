"""What of timing needs no GPU: how many sets and launches, how sets differ, how outputs are flattened."""

from typing import Literal

import pytest
import torch

from evaluators.gates.integrity import check_fresh
from evaluators.timing import flatten_outputs, fresh_us, plan_rotation, roll_into, rotate_inputs

MEGA = 2**20


def test_small_sets_rotate_until_they_exceed_the_cache_twice():
    rotation = plan_rotation(set_bytes=MEGA, output_bytes=MEGA // 2, l2_bytes=50 * MEGA, dram_gb_s=4300)
    assert rotation.n_sets == 100 and rotation.n_launches == 100 and rotation.keeps_outputs


def test_tiny_sets_stop_at_512():
    rotation = plan_rotation(set_bytes=1024, output_bytes=512, l2_bytes=50 * MEGA, dram_gb_s=4300)
    assert rotation.n_sets == 512


def test_large_sets_take_turns_in_pairs_and_need_fewer_launches():
    rotation = plan_rotation(set_bytes=2048 * MEGA, output_bytes=1024 * MEGA, l2_bytes=50 * MEGA, dram_gb_s=4300)
    assert rotation.n_sets == 2 and 2 <= rotation.n_launches <= 8 and not rotation.keeps_outputs


def test_middling_sets_make_eight_launches():
    rotation = plan_rotation(set_bytes=134 * MEGA, output_bytes=67 * MEGA, l2_bytes=50 * MEGA, dram_gb_s=4300)
    assert rotation.n_sets == 2 and rotation.n_launches == 8


def test_sets_hold_the_same_rows_in_other_places_and_other_memory():
    x, n = torch.arange(12.0).reshape(4, 3), 5
    sets = rotate_inputs([x, 7], 3)
    assert torch.equal(sets[0][0], x) and sets[1][1] == 7
    assert torch.equal(sets[1][0], torch.roll(x, 1, 0)) and torch.equal(sets[2][0], torch.roll(x, 2, 0))
    assert len({s[0].data_ptr() for s in sets} | {x.data_ptr()}) == 4
    assert torch.equal(rotate_inputs([x], n + 1)[4][0], x)
    assert torch.equal(rotate_inputs([torch.tensor(3.0)], 2)[1][0], torch.tensor(3.0))


def test_fresh_values_go_into_the_memory_that_was_timed():
    target, fresh = torch.zeros(4, 3), torch.arange(12.0).reshape(4, 3)
    roll_into(target, fresh, 6)
    assert torch.equal(target, torch.roll(fresh, 2, 0))
    roll_into(target, fresh, 4)
    assert torch.equal(target, fresh)


class Keeping:
    """A timed program that leaves an answer where it finds it in its output, four launches over two sets: the watched
    one has an output of its own, the others share the allocator's."""

    method: Literal["graph", "events"] = "graph"
    n_launches = 4

    def __init__(self, sets: list[list[torch.Tensor]], watched: int) -> None:
        self._sets = sets
        self._watched = watched
        self._answers = {True: torch.empty(0), False: torch.empty(0)}

    def replay_us(self, n: int) -> list[float]:
        return [sum(self._launch(i) for i in range(self.n_launches)) / self.n_launches for _ in range(n)]

    def sustain(self, n: int) -> float:
        return 1e-6 * sum(self.replay_us(n))

    def outputs(self) -> list[torch.Tensor]:
        self.replay_us(1)
        return [self._answers[True]]

    def _launch(self, i: int) -> float:
        x, place = self._sets[i % len(self._sets)][0], i == self._watched
        is_done = torch.equal(self._answers[place], x)
        self._answers[place] = x.clone()
        return 10.0 if is_done else 800.0


@pytest.mark.parametrize("watched", range(4))
def test_however_often_one_looks_a_program_that_keeps_answers_is_slower_on_fresh_inputs(watched: int):
    fresh = [torch.randn(64, 3)]
    sets = rotate_inputs([torch.randn(64, 3)], 2)
    timer = Keeping(sets, watched)
    usual_us = timer.replay_us(3)[-1]
    for shift in range(1, 9):
        assert not check_fresh(fresh_us(timer, sets, fresh, watched % 2, shift), usual_us).passed
        assert torch.equal(timer.outputs()[0], fresh[0])


def test_outputs_are_flattened_in_order():
    a, b, c = (torch.tensor(float(i)) for i in range(3))
    assert flatten_outputs((a, [b, None, (c,)])) == [a, b, c]
    assert flatten_outputs(a) == [a]
