"""What a reduction or a scan costs the warps that take part, by the code that Triton makes of it.

Counted in the SASS of small kernels for compute capability 9.0 (triton 3.7.1): with 4 to 32 warps and 128 to 32768
elements the rules below are right to about a fifth.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

WARP_SIZE = 32
VECTOR = 4  # neighbouring elements that a thread holds: 16 bytes of float32
N_BANKS = 32  # of shared memory
REDUCTION_EXCHANGE = 30  # instructions to go through shared memory: addresses, a store, two barriers, a load
SCAN_CHUNK = 15  # of one run of neighbours: sums inside, then those of the lanes and warps before are added
SCAN_PER_WARP = 3  # every thread adds up what the warps before its own have, for each run: load, add, select
REVERSED_PER_ELEMENT = 10  # shuffles that mirror a warp's elements before and after


class Meeting(NamedTuple):
    """What the warps of a program do together, in a reduction or scan. Both counts are of all its warps."""

    instructions: float
    turns: float  # of the unit for shuffles and shared memory: one warp a clock on an SM
    is_among_warps: bool  # do warps wait for each other?


class _Spread(NamedTuple):
    """How an axis lies on the threads of a program."""

    n_lanes: int
    n_warps: int
    n_lanes_inside: int  # that hold neighbours along the axes after it
    lines_per_thread: float  # reductions or scans that one thread takes part in


def _spread(shape: Sequence[int], axis: int, n_warps: int) -> _Spread:
    """Lanes, then warps, go along the last axis first, as Triton's default layouts do."""
    length, inner = shape[axis], prod(shape[axis + 1 :])
    lanes_inside = _power_of_two(min(WARP_SIZE, max(1, inner // VECTOR)))
    warps_inside = _power_of_two(min(n_warps, max(1, inner // (VECTOR * lanes_inside))))
    vector = VECTOR if inner == 1 else 1
    n_lanes = _power_of_two(min(WARP_SIZE // lanes_inside, max(1, length // vector)))
    n_along = _power_of_two(min(n_warps // warps_inside, max(1, length // (vector * n_lanes))))
    n_lines = prod(shape) / length
    lines_per_thread = max(1.0, n_lines * n_lanes * n_along / (n_warps * WARP_SIZE))
    return _Spread(n_lanes, n_along, lanes_inside, lines_per_thread)


def reduction(shape: Sequence[int], axis: int | None, n_values: int, n_warps: int) -> Meeting:
    """A `tl.reduce` over an axis, or over all. The sums inside a thread are counted elsewhere, as arithmetic."""
    flat, axis = ((prod(shape),), 0) if axis is None else (shape, axis % len(shape))
    spread = _spread(flat, axis, n_warps)
    shuffles = spread.lines_per_thread * _log2(spread.n_lanes) * n_values
    instructions, turns = 2 * shuffles, shuffles
    if spread.n_warps > 1:
        among_warps = _log2(spread.n_warps) * n_values
        instructions += REDUCTION_EXCHANGE + 2 * among_warps
        turns += among_warps + 2 * spread.lines_per_thread * _conflicts(spread) * n_values
    return Meeting(instructions * n_warps, turns * n_warps, spread.n_warps > 1)


def _conflicts(spread: _Spread) -> float:
    """Turns of one access: the values of the warps lie side by side, so neighbouring lines lie in few banks."""
    return max(1.0, spread.n_lanes_inside * spread.n_warps / N_BANKS)


def scan(shape: Sequence[int], axis: int, n_values: int, n_warps: int, is_reversed: bool) -> Meeting:
    """A `tl.associative_scan` along an axis."""
    spread = _spread(shape, axis % len(shape), n_warps)
    per_thread = max(1.0, prod(shape) / (n_warps * WARP_SIZE))
    n_chunks = max(1.0, per_thread / VECTOR)
    shuffles = n_chunks * _log2(spread.n_lanes)
    mirrored = REVERSED_PER_ELEMENT * per_thread if is_reversed else 0.0
    instructions = n_chunks * SCAN_CHUNK + 2 * shuffles + mirrored
    turns = shuffles + mirrored
    if spread.n_warps > 1:
        instructions += n_chunks * SCAN_PER_WARP * spread.n_warps
        turns += n_chunks * spread.n_warps / VECTOR
    return Meeting(instructions * n_values * n_warps, turns * n_values * n_warps, spread.n_warps > 1)


def _power_of_two(n: int) -> int:
    return 1 << (max(n, 1).bit_length() - 1)


def _log2(power_of_two: int) -> int:
    return power_of_two.bit_length() - 1
