"""Microseconds for a captured and traced program on a target GPU.

For each launch:

    time = launch + spread(waves) * norm_p(memory, waves * program) + spills

* memory: the longer of DRAM bytes over its bandwidth and L2 bytes over its bandwidth, longer for short stretches.
* program: start + norm_q(alone, together). Alone is its own way from its first instruction to its last: rounds of
  loads, each of which waits for memory (Volkov, "Understanding latency hiding on GPUs", 2016), instructions one after
  the other, and meetings of its warps. Together is what the busiest unit of an SM needs for all programs that are on
  it: issue, shared memory and shuffles, special functions, tensor cores. See `work`.
* norm_p: a program whose warps go in step waits for memory, then computes, then stores. One such group on an SM
  can hardly do two of these at a time (p = 1: times add); several overlap (large p: the longest counts).
* spread: SMs do not end together, and the less so the fewer programs each of them has run one after the other.

An operation of torch takes a launch and the longer of its bytes at DRAM's bandwidth and its products at their rate.

How well this follows measured latencies is in `benchmarks/calibration.py`, the figures are in `constants`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from db.records import Capture, Hardware, Launch, LaunchTraffic, Profile, Record, TorchOp
from evaluators.capture.traffic import SECTOR_BYTES, LaunchTrace
from evaluators.model.constants import FITTED, ModelConstants
from evaluators.model.residency import Residency, residency_of
from evaluators.model.traffic import Traffic, footprint_bytes, read_and_written, traffic_of
from evaluators.model.work import LINE_BYTES, busiest_unit_us, rounds_ahead, work_of

# Bytes per clock between an SM and L2; between its lanes and L1 (Nvidia A100 architecture whitepaper)
SM_L2_BYTES = 64
SM_L1_BYTES = 128


class LaunchTime(Record):
    """Microseconds of one launch, and what they are made of."""

    kernel: str
    total_us: float
    dram_us: float
    l2_us: float
    spilled_us: float
    wait_us: float  # of one program alone, for its loads
    busy_us: float  # of one program alone: instructions and meetings
    program_us: float  # of one program among those that are with it on an SM: a wave
    n_waves: int
    overlap: float  # p of the norm
    compute_us: float  # busiest unit, if all SMs worked without pause


class Footprint(Record):
    """Different bytes of one storage that all launches of a forward read and write, at most its size."""

    name: str  # as in `AddressSpace`
    read_bytes: float
    written_bytes: float


class ModelledLatency(Record):
    """A program's modelled device latency. `capture` is the one that came in, with the traffic of each launch."""

    device_us: float
    floor_us: float  # bytes of inputs and outputs at DRAM bandwidth, products at their rate: nothing honest is faster
    profile: Profile
    launches: tuple[LaunchTime, ...]
    torch_ops_us: float
    capture: Capture
    footprints: tuple[Footprint, ...] = ()
    is_cut: bool = False  # a loop that depends on data, or that takes too long, was not traced to its end


class _Modelled(NamedTuple):
    launch: Launch
    trace: LaunchTrace
    residency: Residency
    traffic: Traffic
    time: LaunchTime


def model_latency(
    capture: Capture, traces: Sequence[LaunchTrace], hardware: Hardware, constants: ModelConstants = FITTED
) -> ModelledLatency:
    """The latency of a captured forward; `traces` has one trace for each launch, in the same order.

    Raises:
        ValueError: the traces are not of these launches.
    """
    if [launch.kernel for launch in capture.launches] != [trace.kernel for trace in traces]:
        raise ValueError(f"{len(traces)} traces do not belong to {len(capture.launches)} launches")
    pairs = zip(capture.launches, traces, strict=True)
    parts = [_model_launch(launch, trace, hardware, constants) for launch, trace in pairs]
    moved = sum(op.moved_bytes for op in capture.torch_ops)
    torch_ops_us = len(capture.torch_ops) * hardware.launch_us + _us(moved, hardware.dram_gb_s)
    torch_ops_us += sum(_beyond_memory_us(op, hardware) for op in capture.torch_ops)
    device_us = sum(part.time.total_us for part in parts) + torch_ops_us
    return ModelledLatency(
        device_us=device_us,
        floor_us=_floor_us(parts, hardware, constants),
        profile=_profile(parts, device_us, capture.torch_ops, hardware),
        launches=tuple(part.time for part in parts),
        torch_ops_us=torch_ops_us,
        capture=capture.model_copy(update={"launches": tuple(_with_traffic(part) for part in parts)}),
        footprints=tuple(_footprints(parts)),
        is_cut=any(trace.is_bounded for trace in traces),
    )


def _us(n_bytes: float, gb_s: float) -> float:
    return n_bytes / gb_s / 1e3


def _flops_us(flops: Mapping[str, float], hardware: Hardware) -> float:
    """What so many operations take, by kind, at the rates that well-tuned code reaches."""
    return sum(n / (hardware.tflops.get(kind, hardware.tflops["fp32"]) * 1e6) for kind, n in flops.items())


def _beyond_memory_us(op: TorchOp, hardware: Hardware) -> float:
    """How much longer a product of a library takes than its bytes do."""
    return max(0.0, _flops_us(op.flops, hardware) - _us(op.moved_bytes, hardware.dram_gb_s))


def _model_launch(launch: Launch, trace: LaunchTrace, hardware: Hardware, constants: ModelConstants) -> _Modelled:
    residency = residency_of(launch, hardware)
    traffic = traffic_of(launch, trace, residency, hardware, constants)
    work = work_of(launch, trace, residency, hardware, constants)
    memory = _memory_of(traffic, residency, hardware, constants)
    memory_us = max(memory.dram_us, memory.l2_us) * _scatter(trace, constants)
    program_us = constants.start_us + work.alone_us
    together_us = busiest_unit_us(work, trace, hardware, math.ceil(residency.n_programs / hardware.n_sms))
    waves_us = norm(constants.wave_norm, residency.n_waves * program_us, together_us)
    waves_us *= trace.imbalance ** (1 / residency.n_waves)
    overlap = _overlap(launch, trace, residency, constants)
    spread = 1.0 + constants.spread / (residency.n_programs / residency.at_once) ** 0.5
    time = LaunchTime(
        kernel=launch.kernel,
        total_us=hardware.launch_us + spread * norm(overlap, memory_us, waves_us) + memory.spilled_us,
        dram_us=memory.dram_us,
        l2_us=memory.l2_us,
        spilled_us=memory.spilled_us,
        wait_us=work.wait_us,
        busy_us=work.busy_us,
        program_us=program_us,
        n_waves=residency.n_waves,
        overlap=overlap,
        compute_us=busiest_unit_us(work, trace, hardware, residency.n_programs / hardware.n_sms),
    )
    return _Modelled(launch, trace, residency, traffic, time)


class _Memory(NamedTuple):
    """What the bytes of a launch take at each level, if nothing else did."""

    dram_us: float
    l2_us: float
    spilled_us: float


def _memory_of(traffic: Traffic, residency: Residency, hardware: Hardware, constants: ModelConstants) -> _Memory:
    dram_bytes = traffic.dram_read / constants.read_gain + traffic.dram_write * constants.write_cost
    sm_gb_s = SM_L2_BYTES * hardware.sm_clock_ghz
    l2_gb_s = min(hardware.l2_gb_s * constants.l2_gain, residency.n_active_sms * sm_gb_s)
    spill_l1_gb_s = hardware.n_sms * SM_L1_BYTES * hardware.sm_clock_ghz * constants.spill_share
    spill_l2_gb_s = hardware.l2_gb_s * constants.spill_share
    return _Memory(
        dram_us=_us(dram_bytes, hardware.dram_gb_s),
        l2_us=_us(traffic.l2, l2_gb_s),
        spilled_us=_us(traffic.spilled_to_l1, spill_l1_gb_s) + _us(traffic.spilled_to_l2, spill_l2_gb_s),
    )


def _scatter(trace: LaunchTrace, constants: ModelConstants) -> float:
    """How much longer memory takes for stretches of sectors that are shorter than a line."""
    sector_bytes = trace.load_sector_bytes + trace.store_sector_bytes
    lines_per_segment = sector_bytes / max(trace.n_segments, 1.0) / LINE_BYTES
    return 1.0 + constants.scatter * max(0.0, 1.0 / max(lines_per_segment, SECTOR_BYTES / LINE_BYTES) - 1.0)


def norm(p: float, *times: float) -> float:
    """The sum of the times for p = 1; for larger p nearer to the longest of them."""
    return float(sum(time**p for time in times) ** (1 / p))


def _overlap(launch: Launch, trace: LaunchTrace, residency: Residency, constants: ModelConstants) -> float:
    """p of the norm: groups of warps on an SM that go their own way.

    The warps of a program go their own way between two barriers, so while there are more rounds of loads than barriers.
    """
    groups = residency.per_sm * min(max(1.0, trace.n_rounds / max(trace.n_barriers, 1.0)), launch.num_warps)
    groups *= rounds_ahead(launch, trace)
    return min(constants.most_overlap, max(constants.least_overlap, float(groups)))


def _floor_us(parts: list[_Modelled], hardware: Hardware, constants: ModelConstants) -> float:
    """Every input that is touched is read once, every output written once; the products take their time."""
    storages: dict[str, float] = {}
    for part in parts:
        for tensor in part.trace.tensors:
            n_bytes = footprint_bytes(tensor, part.residency)
            storages[tensor.name] = max(storages.get(tensor.name, 0.0), n_bytes)
    inside = _written_and_read(parts)
    moved_bytes = sum(n for name, n in storages.items() if name not in inside)
    moved_us = _us(moved_bytes, hardware.dram_gb_s * constants.read_gain)
    dots_us = sum(
        flops * part.residency.n_programs / (hardware.tflops.get(kind, hardware.tflops["fp32"]) * 1e6)
        for part in parts
        for kind, flops in part.trace.dot_flops.items()
    )
    return max(moved_us, dots_us)


def _footprints(parts: list[_Modelled]) -> Iterator[Footprint]:
    """Of every storage. Launches of one forward are taken to touch different parts, until they have touched it all."""
    found: dict[str, tuple[int, float, float]] = {}
    for part in parts:
        for tensor in part.trace.tensors:
            _, read, written = found.get(tensor.name, (0, 0.0, 0.0))
            more_read, more_written = read_and_written(tensor, part.residency)
            found[tensor.name] = tensor.storage_bytes, read + more_read, written + more_written
    for name, (size, read, written) in found.items():
        yield Footprint(name=name, read_bytes=min(size, read), written_bytes=min(size, written))


def _written_and_read(parts: list[_Modelled]) -> set[str]:
    """Storages between launches: a better program might not have them."""
    tensors = [t for part in parts for t in part.trace.tensors if t.name.startswith("t")]
    written = {t.name for t in tensors if t.written_bytes}
    return written & {t.name for t in tensors if t.first_read_bytes}


def _profile(parts: list[_Modelled], device_us: float, torch_ops: Sequence[TorchOp], hardware: Hardware) -> Profile:
    """Shares of the whole latency; the resources are those of the launch that takes longest."""
    torch_bytes = sum(op.moved_bytes for op in torch_ops)
    memory_us = sum(max(part.time.dram_us, part.time.l2_us) for part in parts) + _us(torch_bytes, hardware.dram_gb_s)
    compute_us = sum(part.time.compute_us for part in parts)
    compute_us += sum(_flops_us(op.flops, hardware) for op in torch_ops)
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
