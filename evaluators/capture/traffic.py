"""What a launch asks of memory and arithmetic, before any rule for caches: the record that a trace makes.

All figures but the totals of a grid are means over the sampled programs, per program.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from db.records import Record

SECTOR_BYTES = 32


class Reread(Record):
    """Bytes that a program touches again after it has touched `distance_bytes` of other data."""

    n_bytes: float
    distance_bytes: float


class TensorTraffic(Record):
    """One storage, as one program sees it. Bytes are of whole 32-byte sectors."""

    name: str  # as in `AddressSpace`
    storage_bytes: int
    first_read_bytes: float = 0.0  # sectors whose first touch by the program is a load
    written_bytes: float = 0.0  # different sectors stored
    rereads: tuple[Reread, ...] = ()
    overlap: float = (
        0.0  # share of a program's sectors that another program of the same wave touches as well, in [0, 1]
    )
    is_same_everywhere: bool = False  # all sampled programs touch the same sectors


class LaunchTrace(Record):
    """One launch, traced at sampled programs of its full-size grid."""

    kernel: str
    grid: tuple[int, int, int]
    n_sampled: int
    load_bytes: float  # requested by one program
    store_bytes: float
    load_sector_bytes: float  # of sectors that each load touches: what goes through L1
    store_sector_bytes: float
    tensors: tuple[TensorTraffic, ...]
    n_segments: float = 0.0  # stretches of neighbouring sectors that loads and stores touch
    load_block_bytes: float = 0.0  # as if no element of a block were masked off: what instructions are issued for
    store_block_bytes: float = 0.0
    plain_ops: float = 0.0  # arithmetic on single elements, one lane of an SM for one clock each
    sfu_ops: float = 0.0  # exp, sin, rsqrt, division: the special function units
    dot_flops: dict[str, float] = Field(default_factory=dict)  # by kind, as in `Hardware.tflops`; a multiply-add is two
    n_rounds: float = 0.0  # groups of loads that wait for memory one after the other
    n_iterations: float = 0.0  # of loops that stay loops in the machine code
    n_repeats: float = 1.0  # of the loop body that runs most often
    n_syncs: float = 0.0  # reductions and scans
    n_barriers: float = 0.0  # those of them in which warps wait for each other
    sync_instructions: float = 0.0  # that they take, of all warps; see `meetings`
    sync_turns: float = 0.0  # of the unit for shuffles and shared memory
    imbalance: float = 1.0  # most work of a sampled program over the mean
    is_bounded: bool = False  # a loop whose end depends on data was cut
    constexprs: dict[str, Any] = Field(default_factory=dict)  # as those of the captured `Launch`
    arguments: tuple[str, ...] = ()

    @property
    def n_programs(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]
