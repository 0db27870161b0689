"""The table of GPUs."""

import pytest

from db.errors import ConfigError
from evaluators.hardware import detect_hardware, load_hardware, target_named, target_names


@pytest.mark.parametrize("target", ["a100", "h100", "h200", "l40s", "b200"])
def test_targets_that_people_name_are_there(target: str) -> None:
    hardware = load_hardware(target.upper())
    assert hardware.target == target
    assert hardware.shared_bytes_per_block < hardware.shared_bytes_per_sm


@pytest.mark.parametrize("target", target_names())
def test_rates_are_consistent(target: str) -> None:
    hardware = load_hardware(target)
    assert hardware.l2_gb_s > hardware.dram_gb_s
    assert hardware.tflops["fp16"] >= hardware.tflops["tf32"] >= hardware.tflops["fp32"] > hardware.tflops["fp64"] / 2
    lanes = 64 if hardware.compute_capability == (8, 0) else 128
    peak = 2 * lanes * hardware.n_sms * hardware.sm_clock_ghz / 1e3
    assert hardware.tflops["fp32"] == pytest.approx(0.8 * peak, rel=0.15)  # the clock belongs to the rate


def test_an_h200_is_what_was_measured() -> None:
    h200 = load_hardware("h200")
    assert h200.dram_gb_s == pytest.approx(4300, rel=0.01)
    assert h200.tflops["bf16"] == pytest.approx(790, rel=0.01)


def test_an_unknown_target_suggests_the_near_one() -> None:
    with pytest.raises(ConfigError, match="h10") as error:
        load_hardware("h10")
    assert "did you mean 'h100'" in error.value.hint


@pytest.mark.parametrize(
    ("device", "target"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100"),
        ("NVIDIA A10G", "a10"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L4", "l4"),
        ("Tesla T4", None),
    ],
)
def test_devices_find_their_row(device: str, target: str | None) -> None:
    assert target_named(device) == target


@pytest.mark.gpu
def test_the_device_that_is_plugged_in_has_rates_and_limits() -> None:
    hardware = detect_hardware(0)
    assert hardware.n_sms > 0
    assert 8 * 1024 <= hardware.shared_bytes_per_block < hardware.shared_bytes_per_sm
    assert hardware.tflops["fp16"] > hardware.tflops["fp32"]
