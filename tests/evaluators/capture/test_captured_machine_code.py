"""Cubins, PTX and occupancy, against figures that tools of NVIDIA gave."""

import pytest

from evaluators.capture.cubin import text_hash
from evaluators.capture.occupancy import occupancy_of
from evaluators.capture.ptx import read_global_loads
from evaluators.hardware import load_hardware


def test_what_is_no_cubin_is_refused() -> None:
    with pytest.raises(ValueError, match="ELF"):
        text_hash(b"\x7fELF\x01not of 64 bits")


# Nsight Compute on an H200, a softmax at six numbers of warps: registers and theoretical occupancy
@pytest.mark.parametrize(
    ("num_warps", "n_registers", "percent", "limiter"),
    [
        (1, 168, 18.75, "registers"),
        (2, 94, 31.25, "registers"),
        (4, 54, 56.25, "registers"),
        (8, 38, 75.0, "registers"),
        (16, 26, 100.0, "threads"),
        (32, 20, 100.0, "threads"),
    ],
)
def test_occupancy_is_what_the_profiler_says(num_warps: int, n_registers: int, percent: float, limiter: str) -> None:
    occupancy = occupancy_of(
        load_hardware("h200"), n_registers=n_registers, shared_bytes=128, num_warps=num_warps, n_programs=8192
    )
    assert (100 * occupancy.fraction, occupancy.limiter) == (percent, limiter)


def test_occupancy_by_shared_memory_and_by_the_grid() -> None:
    h100 = load_hardware("h100")
    by_shared = occupancy_of(h100, n_registers=32, shared_bytes=100_000, num_warps=4, n_programs=10_000)
    assert (by_shared.blocks_per_sm, by_shared.limiter) == (2, "shared")
    by_grid = occupancy_of(h100, n_registers=32, shared_bytes=0, num_warps=4, n_programs=64)
    assert (by_grid.blocks_per_sm, by_grid.limiter) == (1, "grid")
    assert occupancy_of(h100, n_registers=32, shared_bytes=300_000, num_warps=4, n_programs=64).blocks_per_sm == 0


def test_widths_of_loads() -> None:
    wide = "@%p1 ld.global.L1::evict_first.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];"
    assert read_global_loads(wide) == (16, False)
    assert read_global_loads("ld.global.b16 { %rs1 }, [ %rd1 ];\n ld.global.v2.b32 { %r1, %r2 }, [ %rd1 ];") == (
        8,
        False,
    )
    assert read_global_loads("cp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, %r2;") == (16, True)
    assert read_global_loads("st.global.v4.b32 [ %rd1 ], { %r1, %r2, %r3, %r4 };") == (0, False)
