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


def test_fresh_inputs_take_no_longer():
    assert integrity.check_fresh(10.9, 10.0).passed
    assert integrity.check_fresh(2.4, 1.8).passed  # short launches vary more
    kept = integrity.check_fresh(50.0, 10.0)
    assert not kept.passed and "keeps what it computed before" in kept.reason


def test_the_clocks_must_agree():
    assert integrity.check_clock(0.020, 0.020, 0.0203).passed
    assert integrity.check_clock(0.023, 0.020, 0.0203).passed  # somebody else disturbed the first measurement
    did_nothing = integrity.check_clock(0.020, 0.020, 0.010)
    hides = integrity.check_clock(0.002, 0.060, 0.061)  # claims a thirtieth of what it takes
    lies_twice = integrity.check_clock(0.002, 0.002, 0.061)
    assert not did_nothing.passed and not hides.passed and not lies_twice.passed
    assert "cannot be trusted" in hides.reason


def test_kernels_must_matter_beside_a_library():
    assert integrity.check_ghost([]).passed  # no library was called
    assert integrity.check_ghost([True, False]).passed  # on one set of zeros they did not
    ghost = integrity.check_ghost([True, True])
    assert not ghost.passed and "change nothing" in ghost.reason
