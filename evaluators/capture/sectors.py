"""Which sectors a program has touched, and how long ago: first touches, rereads, and their reuse distance.

Loops are cut after a few iterations, and those stand for the rest. The first iteration counts once, each further one
for its share of the others: what the first brings in and all others use again then counts as one first touch, and what
every iteration brings in anew counts for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from evaluators.capture.traffic import SECTOR_BYTES

Sectors = npt.NDArray[np.uint64]

# a direct-mapped table: at 65536 sectors a program, 6% of the slots are taken, and about 3% of rereads look new
_TABLE_BITS = 20
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(64 - _TABLE_BITS)


@dataclass(slots=True)
class LoopFrame:
    """A loop that is running. `weight` is how many iterations of it and its parents the current one stands for."""

    parent: LoopFrame | None = None
    depth: int = 0
    weight: float = 1.0


def common_weight(a: LoopFrame, b: LoopFrame) -> float:
    """The weight of the innermost loop that holds both."""
    while a is not b:
        if a.depth >= b.depth and a.parent is not None:
            a = a.parent
        elif b.parent is not None:
            b = b.parent
    return a.weight


class SectorTable:
    """Remembers for each sector the touch that touched it last. Touches are numbered across programs."""

    def __init__(self) -> None:
        self._tags = np.zeros(1 << _TABLE_BITS, dtype=np.uint64)
        self._touches = np.full(1 << _TABLE_BITS, -1, dtype=np.int64)

    def swap(self, sectors: Sectors, touch: int, oldest: int) -> npt.NDArray[np.int64]:
        """The last touch of each known sector (those older than `oldest` are forgotten); all now belong to `touch`."""
        slots = (sectors * _GOLDEN) >> _SHIFT
        known = (self._tags[slots] == sectors) & (self._touches[slots] >= oldest)
        earlier: npt.NDArray[np.int64] = self._touches[slots[known]]
        self._tags[slots] = sectors
        self._touches[slots] = touch
        return earlier


@dataclass(slots=True)
class StorageUse:
    """One storage in one program; bytes of whole sectors, weighted."""

    first_read_bytes: float = 0.0
    written_bytes: float = 0.0
    rereads: dict[float, float] = field(default_factory=dict)  # distance to bytes
    sectors: list[Sectors] = field(default_factory=list)

    def add_reread(self, distance: float, n_bytes: float) -> None:
        """Distances are kept to a factor of two: the rule for L2 needs no more."""
        rounded = 2.0 ** round(np.log2(max(distance, SECTOR_BYTES)))
        self.rereads[rounded] = self.rereads.get(rounded, 0.0) + n_bytes


def sectors_of(addresses: npt.NDArray[np.uint64]) -> Sectors:
    """The different 32-byte sectors behind element addresses, ascending."""
    sectors = addresses.reshape(-1) >> np.uint64(5)
    if sectors.size > 1:
        changes = np.flatnonzero(sectors[1:] != sectors[:-1])
        sectors = sectors[np.concatenate(([0], changes + 1))]
    if sectors.size > 1 and not np.all(sectors[1:] > sectors[:-1]):
        sectors = np.unique(sectors)
    return sectors


def n_runs(sectors: Sectors) -> int:
    """Stretches of neighbouring sectors, among sectors that ascend."""
    return 1 + int(np.count_nonzero(sectors[1:] - sectors[:-1] != 1)) if sectors.size else 0


class ProgramMemory:
    """The memory of one program: every load and store goes through `load` and `store`."""

    def __init__(self, touched: SectorTable, stored: SectorTable, first_touch: int) -> None:
        self.storages: dict[int, StorageUse] = {}
        self._touched = touched
        self._stored = stored
        self._oldest = first_touch
        self._touches: list[tuple[float, LoopFrame, float]] = []  # clock, loop, how much the policy shortens distances
        self._clock = 0.0  # bytes touched so far, weighted

    @property
    def next_touch(self) -> int:
        return self._oldest + len(self._touches)

    def load(self, storage: int, sectors: Sectors, loop: LoopFrame, retention: float) -> None:
        """`retention` above 1 divides the distance to the next use; below 1, the data takes no room from others."""
        use = self._use_of(storage, sectors)
        earlier = self._touch(self._touched, sectors, loop, retention)
        use.first_read_bytes += (sectors.size - earlier.size) * SECTOR_BYTES * loop.weight
        for touch, count in zip(*np.unique(earlier, return_counts=True), strict=True):
            use.add_reread(self._distance(int(touch), loop), float(count) * SECTOR_BYTES * loop.weight)

    def store(self, storage: int, sectors: Sectors, loop: LoopFrame) -> None:
        use = self._use_of(storage, sectors)
        earlier = self._stored.swap(sectors, self.next_touch, self._oldest)
        use.written_bytes += (sectors.size - earlier.size) * SECTOR_BYTES * loop.weight
        self._touch(self._touched, sectors, loop, 1.0)

    def _use_of(self, storage: int, sectors: Sectors) -> StorageUse:
        use = self.storages.setdefault(storage, StorageUse())
        use.sectors.append(sectors)
        return use

    def _touch(self, table: SectorTable, sectors: Sectors, loop: LoopFrame, retention: float) -> npt.NDArray[np.int64]:
        earlier = table.swap(sectors, self.next_touch, self._oldest)
        if retention >= 1.0:
            self._clock += sectors.size * SECTOR_BYTES * loop.weight
        self._touches.append((self._clock, loop, max(retention, 1.0)))
        return earlier

    def _distance(self, touch: int, loop: LoopFrame) -> float:
        clock, its_loop, retention = self._touches[touch - self._oldest]
        return (self._clock - clock) / common_weight(loop, its_loop) / retention
