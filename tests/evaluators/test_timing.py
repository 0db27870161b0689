"""What of timing needs no GPU: how many sets and launches, which can be compared, how outputs are flattened."""

import torch

from evaluators.timing import Rotation, flatten_outputs, plan_rotation

MEGA = 2**20


def test_small_sets_rotate_until_they_exceed_the_cache_twice():
    rotation = plan_rotation(set_bytes=MEGA, output_bytes=MEGA // 2, l2_bytes=50 * MEGA, dram_gb_s=4300)
    assert rotation.n_sets == 100 and rotation.n_launches == 100 and rotation.keeps_outputs


def test_tiny_sets_stop_at_512():
    rotation = plan_rotation(set_bytes=1024, output_bytes=512, l2_bytes=50 * MEGA, dram_gb_s=4300)
    assert rotation.n_sets == 512


def test_large_sets_take_turns_in_pairs_and_need_fewer_launches():
    rotation = plan_rotation(set_bytes=2048 * MEGA, output_bytes=1024 * MEGA, l2_bytes=50 * MEGA, dram_gb_s=4300)
    assert rotation.n_sets == 2 and 2 <= rotation.n_launches <= 8 and rotation.keeps_outputs


def test_outputs_of_all_launches_are_kept_unless_they_are_huge():
    rotation = plan_rotation(set_bytes=20480 * MEGA, output_bytes=10240 * MEGA, l2_bytes=50 * MEGA, dram_gb_s=4300)
    assert rotation.n_launches == 2 and not rotation.keeps_outputs


def test_middling_sets_make_eight_launches():
    rotation = plan_rotation(set_bytes=134 * MEGA, output_bytes=67 * MEGA, l2_bytes=50 * MEGA, dram_gb_s=4300)
    assert rotation.n_sets == 2 and rotation.n_launches == 8


def test_any_launch_can_be_compared_where_its_outputs_are_kept():
    assert Rotation(2, 8, True).comparable("graph", 11) == list(range(8))
    assert Rotation(2, 8, False).comparable("graph", 11) == [3]
    assert Rotation(4, 8, False).comparable("events", 11) == [0, 1, 2, 3]  # called again, one a set


def test_outputs_are_flattened_in_order():
    a, b, c = (torch.tensor(float(i)) for i in range(3))
    assert flatten_outputs((a, [b, None, (c,)])) == [a, b, c]
    assert flatten_outputs(a) == [a]
