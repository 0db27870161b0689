"""Microseconds for a captured and traced program on a target GPU.

For each launch:

    time = launch + norm_p(memory, waves * (start + meetings + computing + spilling))

* memory: the longest of DRAM bytes over its bandwidth, L2 bytes over its bandwidth, and what the loads in flight can
  bring by Little's law (bytes in flight over latency; Volkov, "Understanding latency hiding on GPUs", 2016).
* computing: the busiest unit of an SM, with all programs that are on it: plain lanes, special functions, tensor cores.
* norm_p: a program whose warps go in step waits for memory, then computes, then stores. One such group on an SM
  cannot do two of these at a time (p = 1: times add); several overlap (p = 4: nearly the maximum).

Constants are anchored at an H200 where a comment says so, and else taken from the sources named beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from db.records import Capture, Hardware, Launch, LaunchTraffic, Profile, Record
from evaluators.capture.traffic import LaunchTrace
from evaluators.model.residency import Residency, residency_of
from evaluators.model.traffic import Traffic, footprint_bytes, traffic_of

# A load that misses L2, under load. 480 cycles unloaded on an H100 (Luo et al., "Benchmarking and dissecting the Nvidia
# Hopper GPU architecture", 2024), about twice that when DRAM is busy.
MEMORY_LATENCY_US = 0.6
# A program that starts, waits for its first load and drains its stores. Anchored at an H200: a softmax of (8192, 4096)
# with 32 warps has 2 programs on an SM, 31 waves, and takes 87 us where 62 us would do.
START_US = 1.0
# A reduction: five shuffles of about 25 cycles, then over shared memory between warps, and a barrier of all of them
SHUFFLES_CYCLES = 130.0
EXCHANGE_CYCLES = 80.0
BARRIER_CYCLES_PER_WARP = 4.0
# Lanes of an SM per clock: CUDA C++ Programming Guide, "Throughput of native arithmetic instructions" (8.0 has 64 FP32)
PLAIN_LANES = 128
PLAIN_LANES_OF = {(8, 0): 64, (7, 5): 64, (7, 0): 64}
SFU_LANES = 16
# Bytes per clock between an SM and L2; between its lanes and L1 (Nvidia A100 architecture whitepaper)
SM_L2_BYTES = 64
SM_L1_BYTES = 128
# Loads that one thread has under way before it waits: what ptxas schedules ahead, an estimate
LOADS_IN_FLIGHT = 8
# Warps that keep the four schedulers of an SM busy, at an instruction-level parallelism of about two
BUSY_WARPS = 8
MAX_OVERLAP = 4.0


class LaunchTime(Record):
    """Microseconds of one launch, and what they are made of."""

    kernel: str
    total_us: float
    dram_us: float
    l2_us: float
    in_flight_us: float
    program_us: float  # start, meetings, computing and spilling of one wave
    n_waves: int
    overlap: float  # p of the norm
    compute_us: float  # busiest unit, if all SMs worked without pause


class ModelledLatency(Record):
    """A program's modelled device latency. `capture` is the one that came in, with the traffic of each launch."""

    device_us: float
    floor_us: float  # bytes of inputs and outputs at DRAM bandwidth, products at their rate: nothing honest is faster
    profile: Profile
    launches: tuple[LaunchTime, ...]
    torch_ops_us: float
    capture: Capture


class _Modelled(NamedTuple):
    launch: Launch
    trace: LaunchTrace
    residency: Residency
    traffic: Traffic
    time: LaunchTime


def model_latency(capture: Capture, traces: Sequence[LaunchTrace], hardware: Hardware) -> ModelledLatency:
    """The latency of a captured forward; `traces` has one trace for each launch, in the same order.

    Raises:
        ValueError: the traces are not of these launches.
    """
    if [launch.kernel for launch in capture.launches] != [trace.kernel for trace in traces]:
        raise ValueError(f"{len(traces)} traces do not belong to {len(capture.launches)} launches")
    parts = [_model_launch(launch, trace, hardware) for launch, trace in zip(capture.launches, traces, strict=True)]
    moved = sum(op.moved_bytes for op in capture.torch_ops)
    torch_ops_us = len(capture.torch_ops) * hardware.launch_us + _us(moved, hardware.dram_gb_s)
    device_us = sum(part.time.total_us for part in parts) + torch_ops_us
    return ModelledLatency(
        device_us=device_us,
        floor_us=_floor_us(parts, hardware),
        profile=_profile(parts, device_us, moved, hardware),
        launches=tuple(part.time for part in parts),
        torch_ops_us=torch_ops_us,
        capture=capture.model_copy(update={"launches": tuple(_with_traffic(part) for part in parts)}),
    )


def _us(n_bytes: float, gb_s: float) -> float:
    return n_bytes / gb_s / 1e3


def _model_launch(launch: Launch, trace: LaunchTrace, hardware: Hardware) -> _Modelled:
    residency = residency_of(launch, hardware)
    traffic = traffic_of(launch, trace, residency, hardware)
    dram_us = _us(traffic.dram, hardware.dram_gb_s)
    l2_us = _us(traffic.l2, min(hardware.l2_gb_s, residency.n_active_sms * SM_L2_BYTES * hardware.sm_clock_ghz))
    in_flight_us = _in_flight_us(launch, trace, residency)
    program_us = _program_us(launch, trace, residency, hardware)
    overlap = _overlap(launch, trace, residency)
    memory_us = max(dram_us, l2_us, in_flight_us)
    waves_us = residency.n_waves * program_us * trace.imbalance ** (1 / residency.n_waves)
    time = LaunchTime(
        kernel=launch.kernel,
        total_us=hardware.launch_us + (memory_us**overlap + waves_us**overlap) ** (1 / overlap),
        dram_us=dram_us,
        l2_us=l2_us,
        in_flight_us=in_flight_us,
        program_us=program_us,
        n_waves=residency.n_waves,
        overlap=overlap,
        compute_us=_busy_us(trace, hardware, residency.n_programs / hardware.n_sms),
    )
    return _Modelled(launch, trace, residency, traffic, time)


def _in_flight_us(launch: Launch, trace: LaunchTrace, residency: Residency) -> float:
    """Little's law: what all programs load, over what they have under way at a time, times the latency.

    Under way is one round of loads (the loads before something waits for them), or as many as an asynchronous pipeline
    has stages, but no more than the threads can ask for.
    """
    if not trace.n_rounds:
        return 0.0
    n_ahead = max(1, launch.num_stages - 1) if launch.has_async_copies else 1
    vector_bytes = launch.load_vector_bytes or 4
    most = residency.threads * LOADS_IN_FLIGHT * vector_bytes
    round_bytes = trace.load_bytes / trace.n_rounds
    under_way = round_bytes * n_ahead if launch.has_async_copies else min(round_bytes, most)
    n_rounds = trace.load_bytes / max(under_way, 1.0)
    return n_rounds * MEMORY_LATENCY_US * residency.n_programs / residency.at_once


def _program_us(launch: Launch, trace: LaunchTrace, residency: Residency, hardware: Hardware) -> float:
    """One wave: all programs on an SM, from their start to their end, without waiting for bytes."""
    meeting_cycles = SHUFFLES_CYCLES
    if launch.num_warps > 1:
        meeting_cycles += EXCHANGE_CYCLES + BARRIER_CYCLES_PER_WARP * launch.num_warps
    spilled = 2.0 * launch.spill_bytes * residency.threads * residency.per_sm
    cycles = trace.n_syncs * meeting_cycles + spilled / SM_L1_BYTES
    issue = min(1.0, residency.warps_per_sm / BUSY_WARPS)
    return START_US + cycles / hardware.sm_clock_ghz / 1e3 + _busy_us(trace, hardware, residency.per_sm) / issue


def _busy_us(trace: LaunchTrace, hardware: Hardware, n_programs_per_sm: float) -> float:
    """How long the busiest unit of an SM works for so many programs."""
    cycles_us = n_programs_per_sm / hardware.sm_clock_ghz / 1e3
    lanes = PLAIN_LANES_OF.get(hardware.compute_capability, PLAIN_LANES)
    plain_us = trace.plain_ops / lanes * cycles_us
    sfu_us = trace.sfu_ops / SFU_LANES * cycles_us
    dot_us = sum(
        flops * n_programs_per_sm * hardware.n_sms / (hardware.tflops.get(kind, hardware.tflops["fp32"]) * 1e6)
        for kind, flops in trace.dot_flops.items()
    )
    return max(plain_us, sfu_us, dot_us)


def _overlap(launch: Launch, trace: LaunchTrace, residency: Residency) -> float:
    """p of the norm: groups of warps on an SM that go their own way, from 1 to 4.

    The warps of a program go their own way between two meetings, so while there are more rounds of loads than meetings.
    """
    groups = residency.per_sm * min(max(1.0, trace.n_rounds / max(trace.n_syncs, 1.0)), launch.num_warps)
    if not trace.n_syncs:
        groups = residency.per_sm * launch.num_warps
    if launch.has_async_copies:
        groups *= max(1, launch.num_stages - 1)
    return min(MAX_OVERLAP, float(groups))


def _floor_us(parts: list[_Modelled], hardware: Hardware) -> float:
    """Every input that is touched is read once, every output written once; the products take their time."""
    storages: dict[str, float] = {}
    for part in parts:
        for tensor in part.trace.tensors:
            n_bytes = footprint_bytes(tensor, part.residency)
            storages[tensor.name] = max(storages.get(tensor.name, 0.0), n_bytes)
    inside = _written_and_read(parts)
    moved_us = _us(sum(n for name, n in storages.items() if name not in inside), hardware.dram_gb_s)
    dots_us = sum(
        flops * part.residency.n_programs / (hardware.tflops.get(kind, hardware.tflops["fp32"]) * 1e6)
        for part in parts
        for kind, flops in part.trace.dot_flops.items()
    )
    return max(moved_us, dots_us)


def _written_and_read(parts: list[_Modelled]) -> set[str]:
    """Storages between launches: a better program might not have them."""
    tensors = [t for part in parts for t in part.trace.tensors if t.name.startswith("t")]
    written = {t.name for t in tensors if t.written_bytes}
    return written & {t.name for t in tensors if t.first_read_bytes}


def _profile(parts: list[_Modelled], device_us: float, torch_bytes: float, hardware: Hardware) -> Profile:
    """Shares of the whole latency; the resources are those of the launch that takes longest."""
    memory_us = sum(max(part.time.dram_us, part.time.l2_us) for part in parts) + _us(torch_bytes, hardware.dram_gb_s)
    compute_us = sum(part.time.compute_us for part in parts)
    longest = max(parts, key=lambda part: part.time.total_us, default=None)
    resources = {}
    if longest is not None:
        names = ("n_registers", "spill_bytes", "shared_bytes", "occupancy", "occupancy_limiter")
        resources = {name: getattr(longest.launch, name) for name in names}
    return Profile(
        source="compiled",
        compute_sol_pct=min(100.0, 100 * compute_us / device_us),
        memory_sol_pct=min(100.0, 100 * memory_us / device_us),
        dram_read_bytes=sum(part.traffic.dram_read for part in parts),
        dram_write_bytes=sum(part.traffic.dram_write for part in parts),
        **resources,
    )


def _with_traffic(part: _Modelled) -> Launch:
    n, trace = part.residency.n_programs, part.trace
    flops = {kind: flops * n for kind, flops in trace.dot_flops.items()}
    flops["fp32"] = flops.get("fp32", 0.0) + trace.plain_ops * n
    requested, sectors = trace.load_bytes + trace.store_bytes, trace.load_sector_bytes + trace.store_sector_bytes
    traffic = LaunchTraffic(
        load_bytes=trace.load_bytes * n,
        store_bytes=trace.store_bytes * n,
        dram_read_bytes=part.traffic.dram_read,
        dram_write_bytes=part.traffic.dram_write,
        flops={**flops, "sfu": trace.sfu_ops * n},
        sector_efficiency=min(1.0, requested / sectors) if sectors else 1.0,
        latency_us=part.time.total_us,
    )
    return part.launch.model_copy(update={"traffic": traffic})
