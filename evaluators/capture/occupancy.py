"""How many programs of a launch are resident on one SM, and what limits them."""

from __future__ import annotations

import math
from typing import NamedTuple

from db.records import Hardware

# CUDA Occupancy Calculator, "GPU Data": the same for compute capability 8.0 to 12.0
REGISTERS_PER_WARP_UNIT = 256
WARP_UNIT = 4  # one warp scheduler each
SHARED_UNIT = 128
RESERVED_SHARED_PER_BLOCK = 1024
WARP_SIZE = 32


class Occupancy(NamedTuple):
    """`blocks_per_sm` programs fit on an SM; `fraction` is resident warps over the maximum, in [0, 1]."""

    blocks_per_sm: int
    fraction: float
    limiter: str  # "registers", "shared", "threads", "blocks" or "grid"; the scarcest


def occupancy_of(
    hardware: Hardware, *, n_registers: int, shared_bytes: int, num_warps: int, n_programs: int
) -> Occupancy:
    """Theoretical occupancy of a launch. `blocks_per_sm` is 0 when one program does not fit at all."""
    limits = {  # of two that limit alike, the first is named
        "threads": hardware.max_threads_per_sm // (num_warps * WARP_SIZE),
        "blocks": hardware.max_blocks_per_sm,
        "shared": _by_shared(hardware, shared_bytes),
        "registers": _by_registers(hardware, n_registers, num_warps),
        "grid": math.ceil(n_programs / hardware.n_sms),
    }
    limiter = min(limits, key=lambda name: limits[name])
    blocks = limits[limiter]
    return Occupancy(blocks, blocks * num_warps * WARP_SIZE / hardware.max_threads_per_sm, limiter)


def _by_registers(hardware: Hardware, n_registers: int, num_warps: int) -> int:
    if n_registers == 0:
        return hardware.max_blocks_per_sm
    per_warp = _round_up(n_registers * WARP_SIZE, REGISTERS_PER_WARP_UNIT)
    warps = hardware.registers_per_sm // per_warp // WARP_UNIT * WARP_UNIT
    return warps // num_warps


def _by_shared(hardware: Hardware, shared_bytes: int) -> int:
    if shared_bytes > hardware.shared_bytes_per_block:
        return 0
    return hardware.shared_bytes_per_sm // _round_up(shared_bytes + RESERVED_SHARED_PER_BLOCK, SHARED_UNIT)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
