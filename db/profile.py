"""Records of why a program is not faster: what counters or the compiler say of it, and what that means.

A `Profile` is what was read, a `BottleneckReport` what limits the program, and its `PerformanceState` the part of that
which knowledge is kept under: programs in one state are expected to answer alike to a technique.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from db.frozen import Record
from db.measures import Tier


class Stall(Record):
    """Why warps wait: cycles between two instructions of a warp that this reason accounts for, and its share of all."""

    reason: str  # as Nsight Compute names it, without prefix: "long_scoreboard", "barrier", "math_pipe_throttle"
    cycles: float = Field(ge=0)
    share: float = Field(ge=0, le=1)


class Rule(Record):
    """What a rule of Nsight Compute found. `speedup_pct` is what it estimates could be won: of this kernel's time where
    the scope is "global", of the part that the rule is about where it is "local"."""

    name: str
    section: str
    message: str
    speedup_pct: float | None = None
    scope: Literal["local", "global", ""] = ""


class Counters(Record):
    """What is read of one kernel, or of a whole program. A value that nobody read is None."""

    duration_us: float | None = None
    compute_sol_pct: float = 0.0  # speed of light of the SMs and of memory, in [0, 100]
    memory_sol_pct: float = 0.0
    dram_pct: float | None = None  # throughput over the peak of DRAM, L1 and L2
    l1_pct: float | None = None
    l2_pct: float | None = None
    dram_gb_s: float | None = None
    dram_read_bytes: float | None = None
    dram_write_bytes: float | None = None
    l1_hit_pct: float | None = None
    l2_hit_pct: float | None = None
    tensor_pct: float | None = None  # cycles in which the tensor pipes are active
    issue_pct: float | None = None  # scheduler cycles that issue an instruction
    n_registers: int | None = None  # per thread
    spill_bytes: int | None = None  # per thread
    shared_bytes: int | None = None  # per block
    occupancy: float | None = None  # theoretical: resident warps over the maximum, in [0, 1]
    achieved_occupancy: float | None = None
    occupancy_limiter: str = ""  # "registers", "shared", "threads", "blocks", "barriers", "grid"
    waves_per_sm: float | None = None
    stalls: tuple[Stall, ...] = ()  # the largest first
    rules: tuple[Rule, ...] = ()  # estimates for the kernel first, the largest of them before others

    @property
    def roofline_efficiency(self) -> float:
        """The larger speed of light, in [0, 1]."""
        return max(self.compute_sol_pct, self.memory_sol_pct) / 100


class KernelProfile(Counters):
    """One launch of a program, as counters saw it."""

    kernel: str
    grid: tuple[int, int, int] = (1, 1, 1)
    n_threads: int = 0  # per block


class Profile(Counters):
    """What limits a program. `source` says where it is from: `ncu`, `compiled` (the model), or `none`.

    With counters, the whole is made of `kernels`, which are in launch order: durations and bytes summed, percentages
    weighted by duration, resources, stalls and rules those of the `dominant` kernel.
    """

    source: Literal["compiled", "ncu", "none"]
    note: str = ""  # why there are no counters
    gpu_s: float = 0.0  # for how long reading it kept others from measuring on the GPU
    dominant: str = ""
    kernels: tuple[KernelProfile, ...] = ()


class Bottleneck(StrEnum):
    """What can keep a program from being faster. Values appear in archives and files."""

    DRAM_BANDWIDTH = "dram_bandwidth"
    CACHE_BANDWIDTH = "cache_bandwidth"  # L2 or L1
    MEMORY_LATENCY = "memory_latency"  # loads that nothing hides
    TENSOR_CORES = "tensor_cores"
    ARITHMETIC = "arithmetic"
    SYNCHRONISATION = "synchronisation"  # barriers, reductions across warps
    PARALLELISM = "parallelism"  # too few programs for the GPU, or a last wave that is nearly empty
    SPILLS = "spills"
    LAUNCHES = "launches"  # many short kernels


class KernelKind(StrEnum):
    """What the dominant kernel does, as far as its source says it."""

    MATMUL = "matmul"
    SCAN = "scan"
    REDUCTION = "reduction"  # every program walks along a row or column
    ROW = "row"  # a whole row at once, reduced and mapped
    ELEMENTWISE = "elementwise"
    OTHER = "other"


class PerformanceState(Record):
    """What knowledge is kept under. `architecture` as compilers name it: "sm_90"."""

    primary: Bottleneck
    secondary: Bottleneck | None = None
    limiter: str = ""  # the dominant stall, or what limits occupancy
    kernel_kind: KernelKind = KernelKind.OTHER
    architecture: str = ""

    @property
    def key(self) -> str:
        """One word for the state, in archives and tables; `parse` is its inverse."""
        parts = (self.primary, self.secondary or "-", self.limiter or "-", self.kernel_kind, self.architecture or "-")
        return "/".join(parts)

    @classmethod
    def parse(cls, key: str) -> PerformanceState:
        """The state of a key.

        Raises:
            ValueError: this is no key of a state.
        """
        parts = key.split("/")
        if len(parts) != 5:
            raise ValueError(f"a state has five parts, got {key!r}")
        primary, secondary, limiter, kind, architecture = ("" if part == "-" else part for part in parts)
        return cls(
            primary=Bottleneck(primary),
            secondary=Bottleneck(secondary) if secondary else None,
            limiter=limiter,
            kernel_kind=KernelKind(kind),
            architecture=architecture,
        )


class Evidence(Record):
    """One figure that a diagnosis rests on, and what it means."""

    metric: str
    value: float
    unit: str
    meaning: str


class BottleneckReport(Record):
    """Why a program is not faster. The same profile always gives the same report."""

    tier: Tier
    source: Literal["compiled", "ncu", "none"]  # of the profile that it rests on
    state: PerformanceState
    limit: str  # what limits the program, in one sentence
    evidence: tuple[Evidence, ...] = ()
    rules: tuple[Rule, ...] = ()  # the top three by estimated speed-up
    roofline_efficiency: float = 0.0  # in [0, 1]
    techniques: tuple[str, ...] = ()  # of the catalogue, that address this, best first
