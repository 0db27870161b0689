"""What of timing needs no GPU: how many sets and launches, how sets differ, how outputs are flattened."""

import torch

from evaluators.timing import flatten_outputs, plan_rotation, roll_into, rotate_inputs

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


def test_outputs_are_flattened_in_order():
    a, b, c = (torch.tensor(float(i)) for i in range(3))
    assert flatten_outputs((a, [b, None, (c,)])) == [a, b, c]
    assert flatten_outputs(a) == [a]
