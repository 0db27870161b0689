"""What one program does while it runs: instructions that it issues, and what it waits for."""

from __future__ import annotations

from typing import NamedTuple

from db.records import Hardware, Launch
from evaluators.capture.occupancy import WARP_SIZE
from evaluators.capture.traffic import LaunchTrace
from evaluators.model.constants import ModelConstants
from evaluators.model.residency import Residency

# Warp instructions that an SM issues per clock, one by each scheduler
ISSUE_PER_CYCLE = 4
# Lanes of an SM per clock: CUDA C++ Programming Guide, "Throughput of native arithmetic instructions" (8.0 has 64 FP32)
HALF_RATE = {(8, 0), (7, 5), (7, 0)}
SFU_LANES = 16
NARROWEST_LOAD = 4
WIDEST_COPY = 16  # bytes of one thread, past L1
LINE_BYTES = 128
# Of a warp, counted in the SASS of a copy: address and access; counter, comparison, jump and pointers that advance
ACCESS_INSTRUCTIONS = 2
LOOP_INSTRUCTIONS = 6
REGISTER_BYTES = 4
FEWEST_REGISTERS = 4  # that hold what a thread has loaded


class Work(NamedTuple):
    """Of one program. Microseconds where no other program is on the SM."""

    instructions: float  # of all its warps
    turns: float  # of the unit for loads, stores, shuffles and shared memory
    wait_us: float  # for loads, one round after the other
    busy_us: float  # instructions one after the other, and meetings of its warps
    is_pipelined: bool  # loads are under way while it is busy

    @property
    def alone_us(self) -> float:
        """From its first instruction to its last."""
        return max(self.wait_us, self.busy_us) if self.is_pipelined else self.wait_us + self.busy_us


def work_of(
    launch: Launch, trace: LaunchTrace, residency: Residency, hardware: Hardware, constants: ModelConstants
) -> Work:
    """What a program of the launch does."""
    accesses = _Accesses.of(launch, trace)
    instructions = trace.plain_ops / WARP_SIZE + trace.sync_instructions
    instructions += (accesses.n_loads + accesses.n_stores) * ACCESS_INSTRUCTIONS
    instructions += trace.n_iterations * launch.num_warps * LOOP_INSTRUCTIONS
    is_narrow_copy = launch.has_async_copies and accesses.vector_bytes < WIDEST_COPY
    per_load = constants.async_cycles if is_narrow_copy else accesses.turns
    meeting = trace.n_syncs * constants.shuffles_cycles
    meeting += trace.n_barriers * launch.num_warps * constants.barrier_cycles_per_warp
    cycles = meeting + instructions / launch.num_warps * constants.cycles_per_instruction
    n_ahead = rounds_ahead(launch, trace)
    return Work(
        instructions=instructions,
        turns=trace.sync_turns + accesses.n_loads * per_load + accesses.n_stores * accesses.turns,
        wait_us=_n_waits(launch, trace, residency, constants) / n_ahead * constants.memory_latency_us,
        busy_us=cycles / hardware.sm_clock_ghz / 1e3,
        is_pipelined=launch.has_async_copies,
    )


class _Accesses(NamedTuple):
    """Loads and stores of a program, as instructions of a warp."""

    n_loads: float
    n_stores: float
    vector_bytes: int  # of one thread

    @classmethod
    def of(cls, launch: Launch, trace: LaunchTrace) -> _Accesses:
        vector_bytes = launch.load_vector_bytes or NARROWEST_LOAD
        warp_bytes = vector_bytes * WARP_SIZE
        return cls(trace.load_block_bytes / warp_bytes, trace.store_block_bytes / warp_bytes, vector_bytes)

    @property
    def turns(self) -> float:
        """Of one access: a line of L1 each."""
        return max(1.0, self.vector_bytes * WARP_SIZE / LINE_BYTES)


def rounds_ahead(launch: Launch, trace: LaunchTrace) -> float:
    """Rounds of loads that an asynchronous pipeline has under way: those that its shared memory holds.

    Products read one of them from shared memory meanwhile.
    """
    if not launch.has_async_copies or not trace.n_rounds:
        return 1.0
    n_held = launch.shared_bytes // max(1.0, trace.load_block_bytes / trace.n_rounds) - bool(trace.dot_flops)
    return max(1.0, min(trace.n_rounds, n_held))


def _n_waits(launch: Launch, trace: LaunchTrace, residency: Residency, constants: ModelConstants) -> float:
    """Rounds of loads, or more where the registers do not hold a whole round."""
    if not trace.n_rounds or launch.has_async_copies:
        return trace.n_rounds
    free = max(FEWEST_REGISTERS, launch.n_registers - constants.busy_registers)
    return max(trace.n_rounds, trace.load_block_bytes / (residency.threads * free * REGISTER_BYTES))


def busiest_unit_us(work: Work, trace: LaunchTrace, hardware: Hardware, n_programs_per_sm: float) -> float:
    """How long the busiest unit of an SM works for so many programs."""
    cycles = [work.instructions / ISSUE_PER_CYCLE, work.turns, trace.sfu_ops / SFU_LANES]
    if hardware.compute_capability in HALF_RATE:
        cycles.append(trace.plain_ops / (ISSUE_PER_CYCLE * WARP_SIZE / 2))
    dot_us = sum(
        flops * n_programs_per_sm * hardware.n_sms / (hardware.tflops.get(kind, hardware.tflops["fp32"]) * 1e6)
        for kind, flops in trace.dot_flops.items()
    )
    return max(max(cycles) * n_programs_per_sm / hardware.sm_clock_ghz / 1e3, dot_us)
