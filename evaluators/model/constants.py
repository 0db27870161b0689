"""The figures of the latency model that are in no data sheet, in one frozen record.

"Fitted": by `benchmarks/calibration.py`, to the latencies of programs on an H200. Figures of a clock or a share should
carry over to other GPUs; nobody has measured that they do.
"""

from __future__ import annotations

from typing import NamedTuple


class ModelConstants(NamedTuple):
    """Times in microseconds, or in clocks of an SM."""

    # DRAM. `Hardware.dram_gb_s` is what a copy reaches. Measured on an H200: the fastest programs that only read reach
    # 4570 of its 4300 GB/s, those that read and write alike 4250
    read_gain: float = 1.06
    write_cost: float = 1.06
    # L2 bandwidth over `Hardware.l2_gb_s`, which is a cautious figure: products of 4096 squared read 8.3 TB/s. Fitted
    l2_gain: float = 1.49
    # How much longer memory takes for each line that a stretch of neighbouring sectors is short of one: 64 bytes take
    # 1.5 times as long. Fitted
    scatter: float = 0.51
    # Rereads hit up to a working set of L2's size and miss from this multiple of it on: replacement is not quite LRU,
    # so there is no cliff. With it a softmax of (4096, 65536) in two walks falls between all and nothing, as measured
    l2_gone_at: float = 2.0
    # What is lost because SMs do not end together: this share for one program after another on an SM, less by the root
    # of how many there are. Fitted; work that is handed out beforehand does not even out
    spread: float = 0.165
    # One program: from its launch to its first instruction, and from its last to the next program
    start_us: float = 0.54
    # A round of loads until it has come. 480 clocks without load on an H100 (Luo et al., "Benchmarking and dissecting
    # the Nvidia Hopper GPU architecture", 2024), twice that when DRAM is busy. Fitted
    memory_latency_us: float = 0.42
    # Registers of a thread that do not hold what it loads: addresses, sums, the loop. Fitted
    busy_registers: float = 18.0
    # A reduction or scan in one warp: five shuffles, one after the other, and what waits for them. Fitted
    shuffles_cycles: float = 390.0
    # The same among warps, over shared memory: waiting at two barriers, for each warp of the program. Fitted
    barrier_cycles_per_warp: float = 19.0
    # Clocks from one instruction of a warp to its next, when nobody else is there. Fitted
    cycles_per_instruction: float = 2.65
    # Clocks that a copy of less than 16 bytes a thread into shared memory keeps the unit for loads. Fitted
    async_cycles: float = 17.7
    # Bandwidth for spilled registers, over that of L2 (with `l2_gain` left out) or of L1. Fitted; more than 1, because
    # not all of a stack is written and read
    spill_share: float = 2.0
    # p of the norms: of programs against their SM's busiest unit, and of memory against programs, at least and at most
    # (warps of one program drift apart, so that even one overlaps a little). Fitted
    wave_norm: float = 3.6
    least_overlap: float = 1.3
    most_overlap: float = 8.9


FITTED = ModelConstants()
