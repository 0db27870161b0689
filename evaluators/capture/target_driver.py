"""The driver that Triton and host code ask, answered for the target: the same where programs are captured, traced and
interpreted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from triton.backends.compiler import GPUTarget

from db.records import Hardware
from evaluators.capture.fake_device import CUDA_0
from evaluators.capture.occupancy import WARP_SIZE


class TargetDriver:
    """What Triton asks a driver, answered for the target."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self.utils = self

    def get_current_target(self) -> Any:
        major, minor = self._hardware.compute_capability
        return GPUTarget("cuda", major * 10 + minor, WARP_SIZE)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _device: int = 0) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        return CUDA_0

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """An autotuner's stopwatch: every configuration is run once and called equally fast, so the first one wins."""

        def benchmark(call: Callable[[], Any], **_options: Any) -> list[float]:
            call()
            return [1.0, 1.0, 1.0]

        return benchmark

    def get_device_properties(self, _device: int = 0) -> dict[str, int]:
        return {
            "max_shared_mem": self._hardware.shared_bytes_per_block,
            "max_num_regs": self._hardware.registers_per_sm,
            "multiprocessor_count": self._hardware.n_sms,
            "warpSize": WARP_SIZE,
            "sm_clock_rate": int(self._hardware.sm_clock_ghz * 1e6),
        }
