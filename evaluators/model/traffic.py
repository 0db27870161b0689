"""Which of the bytes that a launch touches come from DRAM, which from L2, and which from L1.

Requested bytes are not DRAM bytes. A sector is fetched once; it is fetched again when what was touched in between, by
all programs that run at the same time, is more than L2 holds (a stack distance, Mattson et al., "Evaluation techniques
for storage hierarchies", IBM Systems Journal 1970, scaled by the programs that run side by side).
"""

from __future__ import annotations

from typing import NamedTuple

from db.records import Hardware, Launch
from evaluators.capture.traffic import LaunchTrace, TensorTraffic
from evaluators.model.constants import ModelConstants
from evaluators.model.residency import Residency

# Share of an SM's L1 and shared memory that rereads find: the L1 is what shared memory leaves, and it holds other data
L1_SHARE = 0.5


class Traffic(NamedTuple):
    """Bytes of the whole launch at each level."""

    dram_read: float
    dram_write: float
    l2: float
    spilled_to_l1: float  # local memory, written and read back; not part of the above
    spilled_to_l2: float

    @property
    def dram(self) -> float:
        return self.dram_read + self.dram_write


def traffic_of(
    launch: Launch, trace: LaunchTrace, residency: Residency, hardware: Hardware, constants: ModelConstants
) -> Traffic:
    """The bytes of a launch at each level of memory."""
    spilled = 2.0 * launch.spill_bytes * residency.threads * residency.n_programs * max(1.0, trace.n_repeats)
    spill_room = launch.spill_bytes * residency.threads * residency.per_sm
    # what else is loaded goes through L1 and leaves no room there, but for copies past it
    is_in_l1 = launch.has_async_copies and spill_room <= _l1_bytes(launch, residency, hardware)
    spill_misses = _missing(spill_room * residency.n_active_sms, hardware, constants) * spilled / 2
    wave_bytes = sum(_wave_bytes(tensor, residency) for tensor in trace.tensors)
    read = sum(_dram_read(t, wave_bytes, residency, hardware, constants) for t in trace.tensors)
    written = sum(_whole_grid(t, t.written_bytes, residency) for t in trace.tensors)
    in_l1 = sum(_l1_hits(tensor, launch, residency, hardware) for tensor in trace.tensors)
    sectors = trace.load_sector_bytes + trace.store_sector_bytes - in_l1
    return Traffic(
        dram_read=read + spill_misses,
        dram_write=written + spill_misses,
        l2=sectors * residency.n_programs,
        spilled_to_l1=spilled if is_in_l1 else 0.0,
        spilled_to_l2=0.0 if is_in_l1 else spilled,
    )


def footprint_bytes(tensor: TensorTraffic, residency: Residency) -> float:
    """Different bytes of a storage that the whole grid reads for the first time or writes."""
    return max(read_and_written(tensor, residency))


def read_and_written(tensor: TensorTraffic, residency: Residency) -> tuple[float, float]:
    """Different bytes of a storage that the whole grid reads before it writes them, and that it writes."""
    read = _whole_grid(tensor, tensor.first_read_bytes, residency)
    return read, _whole_grid(tensor, tensor.written_bytes, residency)


def _whole_grid(tensor: TensorTraffic, per_program: float, residency: Residency) -> float:
    """Different bytes that all programs touch together, from what one touches.

    At most the storage, and at most what the waves touch if they had nothing in common.
    """
    if tensor.is_same_everywhere:
        return min(float(tensor.storage_bytes), per_program)
    of_waves = per_program * residency.n_programs / _sharers(tensor, residency)
    return min(float(tensor.storage_bytes), max(per_program, of_waves))


def _sharers(tensor: TensorTraffic, residency: Residency) -> float:
    """Programs of a wave that touch the same sector: one, and of the others the share that overlaps."""
    return 1.0 + (residency.at_once - 1) * tensor.overlap


def _wave_bytes(tensor: TensorTraffic, residency: Residency) -> float:
    """Different bytes of a storage that the programs of one wave touch."""
    per_program = tensor.first_read_bytes + tensor.written_bytes
    return min(float(tensor.storage_bytes), per_program * residency.at_once / _sharers(tensor, residency))


def _dram_read(
    tensor: TensorTraffic, wave_bytes: float, residency: Residency, hardware: Hardware, constants: ModelConstants
) -> float:
    once = _whole_grid(tensor, tensor.first_read_bytes, residency)
    if not tensor.first_read_bytes and not tensor.rereads:
        return 0.0
    n_waves = residency.n_programs / residency.at_once
    read_share = tensor.first_read_bytes / max(tensor.first_read_bytes + tensor.written_bytes, 1.0)
    by_other_waves = max(0.0, n_waves * _wave_bytes(tensor, residency) * read_share - once)
    side_by_side = residency.at_once / _sharers(tensor, residency)  # what is shared, the others keep in L2
    again = sum(r.n_bytes * _missing(r.distance_bytes * side_by_side, hardware, constants) for r in tensor.rereads)
    return once + by_other_waves * _missing(wave_bytes, hardware, constants) + again * residency.n_programs


def _missing(working_set_bytes: float, hardware: Hardware, constants: ModelConstants) -> float:
    """The share of rereads that L2 does not answer, in [0, 1].

    There is no cliff, because replacement is not strictly LRU.
    """
    filled = working_set_bytes / hardware.l2_bytes
    return min(1.0, max(0.0, (filled - 1.0) / (constants.l2_gone_at - 1.0)))


def _l1_bytes(launch: Launch, residency: Residency, hardware: Hardware) -> float:
    return L1_SHARE * max(0, hardware.shared_bytes_per_sm - launch.shared_bytes * residency.per_sm)


def _l1_hits(tensor: TensorTraffic, launch: Launch, residency: Residency, hardware: Hardware) -> float:
    """Bytes of one program that L1 answers: rereads, and what its neighbours on the SM have just read."""
    room = _l1_bytes(launch, residency, hardware)
    reread = sum(r.n_bytes for r in tensor.rereads if r.distance_bytes * residency.per_sm <= room)
    sharers = 1.0 + (residency.per_sm - 1) * (1.0 if tensor.is_same_everywhere else tensor.overlap)
    return reread + tensor.first_read_bytes * (1.0 - 1.0 / sharers)
