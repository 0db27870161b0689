import random

import pytest
import torch

from evaluators.gates import integrity
from tests.support.runs import make_hardware

HARDWARE = make_hardware()  # 4300 GB/s, 60 MiB of L2


FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int8, torch.uint8, torch.int64, torch.bool])
def test_poison_is_not_what_empty_or_zero_memory_holds(dtype):
    output = torch.zeros(8, dtype=dtype)
    integrity.poison_(output)
    if dtype.is_floating_point:
        assert output.isnan().all()
    else:
        assert (output != 0).all() and not integrity.has_same_bytes(output, torch.ones(8, dtype=dtype))


def test_bits_are_compared_not_values():
    nan = torch.tensor([float("nan")])
    assert integrity.has_same_bytes(nan, nan.clone())
    assert not integrity.has_same_bytes(torch.tensor([0.0]), torch.tensor([-0.0]))
    complex_values = torch.tensor([1 + 2j], dtype=torch.complex128)
    assert integrity.has_same_bytes(complex_values, complex_values.clone())
    assert not integrity.has_same_bytes(complex_values, complex_values.conj().resolve_conj())


def test_bits_of_what_is_conjugated_when_it_is_read_are_those_that_are_read() -> None:
    values = torch.complex(torch.ones(3), torch.ones(3))
    assert not integrity.has_same_bytes(values.conj(), values)
    assert integrity.has_same_bytes(values.conj(), torch.complex(torch.ones(3), -torch.ones(3)))
    leaf = torch.ones(2, requires_grad=True)
    assert not integrity.bits(leaf).requires_grad and integrity.bits(leaf).data_ptr() == leaf.data_ptr()


def test_all_that_differs_is_found_at_once():
    same, other, nothing = torch.ones(3), torch.tensor([1.0, 1.0, -1.0]), torch.empty(0)
    flags = torch.tensor([True, False])
    pairs = [
        (same, same.clone()),
        (same, other),
        (nothing, nothing),
        (flags, ~flags),
        (torch.tensor(2), torch.tensor(3)),
    ]
    assert integrity.differing(pairs) == [1, 3, 4] and integrity.differing([]) == []
    assert integrity.differing([(torch.tensor([0.0]), torch.tensor([-0.0]))]) == [0]


def test_a_changed_input_is_named():
    kept = [torch.ones(3), 5, torch.arange(4)]
    given = [torch.ones(3), 5, torch.arange(4)]
    assert integrity.check_inputs(given, kept).passed
    given[2][0] = 9
    refused = integrity.check_inputs(given, kept)
    assert not refused.passed and "input 2" in refused.reason


def test_nothing_is_faster_than_memory():
    gigabyte = 10**9
    floor = integrity.floor_us(gigabyte, HARDWARE)
    assert floor == pytest.approx(219.4, rel=1e-3)
    assert integrity.check_floor(floor, gigabyte, gigabyte, HARDWARE).passed
    refused = integrity.check_floor(0.85 * floor, gigabyte, gigabyte, HARDWARE)
    assert not refused.passed and "faster than memory" in refused.reason


def test_what_the_l2_may_hold_is_allowed_for():
    small = 10 * 2**20
    floor = integrity.floor_us(small, HARDWARE)
    twelve_sets = 12 * small
    assert integrity.check_floor(0.5 * floor, small, twelve_sets, HARDWARE).passed
    assert not integrity.check_floor(0.3 * floor, small, twelve_sets, HARDWARE).passed
    assert integrity.check_floor(0.01 * floor, small, small, HARDWARE).passed  # it all fits


NOISE = 0.013  # of timing at 70 us


def test_one_look_clears_a_program_that_is_as_fast_on_fresh_inputs():
    assert integrity.check_fresh([1.004], NOISE, least=1).passed
    assert integrity.check_fresh([1.004], NOISE, least=3) is None
    assert integrity.check_fresh([1.6, 1.004, 0.997], NOISE, least=3).passed  # somebody else stalled the first


def test_a_quarter_of_the_time_saved_by_keeping_answers_is_refused():
    ratios = [1.25, 1.24, 1.26, 1.27, 1.25, 1.24]
    for n in range(1, 6):
        assert integrity.check_fresh(ratios[:n], NOISE, least=1) is None
    kept = integrity.check_fresh(ratios, NOISE, least=1)
    assert not kept.passed and "keeps what it computed before" in kept.reason


def test_a_look_whose_second_replay_was_disturbed_clears_nobody():
    assert integrity.check_fresh([0.4, 0.5, 0.3], NOISE, least=1) is None
    assert not integrity.check_fresh([0.4, *[1.25] * 6], NOISE, least=1).passed


def test_honest_noise_is_never_refused():
    rng = random.Random(3)
    for _ in range(500):
        ratios = []
        for _ in range(12):
            stalled = 4.0 if rng.random() < 0.2 else 1.0
            ratios.append(stalled * rng.gauss(1.0, NOISE) / (4.0 if rng.random() < 0.2 else 1.0))
            answer = integrity.check_fresh(ratios, NOISE, least=3)
            if answer is not None:
                break
        assert answer is None or answer.passed


def test_the_clocks_must_agree():
    assert integrity.check_clock(0.030, 0.030, 0.0304).passed
    assert integrity.check_clock(0.034, 0.030, 0.0304).passed  # somebody else disturbed the first measurement
    assert integrity.check_clock(0.028, 0.030, 0.0304).passed  # a GPU that is kept busy lowers its clock
    did_nothing = integrity.check_clock(0.030, 0.030, 0.010)
    hides = integrity.check_clock(0.030, 0.300, 0.301)  # truthful before, or after, and claims a tenth
    half = integrity.check_clock(0.0165, 0.030, 0.0304)
    lies_twice = integrity.check_clock(0.030, 0.030, 0.0545)
    for refused in (did_nothing, hides, half, lies_twice):
        assert not refused.passed and "cannot be trusted" in refused.reason


def test_rounds_are_clocked_by_their_medians_beside_the_baseline():
    watched, control = [0.0042, 0.0041, 0.0043, 0.040, 0.0042, 0.0041], [0.0002] * 6
    assert integrity.check_rounds([0.004] * 6, watched, control).passed  # one round was stalled
    assert not integrity.check_rounds([0.0004] * 6, watched, control).passed
    slow_messages = [0.0102] * 6
    assert integrity.check_rounds([0.004] * 6, slow_messages, [0.006] * 6).passed


def test_a_weight_that_was_written_to_is_named():
    kept = {"a": torch.ones(3), "b": torch.zeros(2)}
    assert integrity.check_weights({"a": torch.ones(3), "b": torch.zeros(2)}, kept).passed
    refused = integrity.check_weights({"a": torch.ones(3), "b": torch.tensor([0.0, -0.0])}, kept)
    assert not refused.passed and "weight b" in refused.reason


def test_what_is_behind_the_end_and_in_the_process_must_stay():
    assert integrity.check_canaries([True, True]).passed and not integrity.check_canaries([True, False]).passed
    assert integrity.check_state([]).passed
    assert "grad mode" in integrity.check_state(["grad mode was False, it is True"]).reason


def test_kernels_must_matter_beside_a_library():
    assert integrity.check_ghost([]).passed  # no library was called
    assert integrity.check_ghost([True, False]).passed  # on one set of zeros they did not
    ghost = integrity.check_ghost([True, True])
    assert not ghost.passed and "change nothing" in ghost.reason
