"""Which device a run is judged on, found without importing torch."""

from __future__ import annotations

import ctypes
from typing import Literal

from db.errors import DeviceError
from db.records import DeviceKind


def resolve_device(wanted: Literal["auto", "cuda", "cpu"], *, cluster_address: str = "") -> DeviceKind:
    """The device for a choice: `auto` takes CUDA where this machine has a GPU.

    Raises:
        DeviceError: CUDA was asked for and this machine has no GPU (a cluster's GPUs are Ray's to find).
    """
    if wanted == "cpu":
        return DeviceKind.CPU
    if cluster_address or count_local_gpus():
        return DeviceKind.CUDA
    if wanted == "cuda":
        raise DeviceError("no CUDA device on this machine", "see `evolve doctor`, or use --device cpu for the model")
    return DeviceKind.CPU


def count_local_gpus() -> int:
    """GPUs that the CUDA driver shows this process; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value
