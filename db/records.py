"""The records that the rooms exchange. Frozen; each refuses to contradict itself.

A `Candidate` goes down from islands to evaluators, a `Verdict` comes up. Both lie in `db` so that neither side has to
know the other.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import Field, computed_field, field_validator, model_validator

from db.frozen import Record as Record
from db.hashing import content_hash, program_id_of
from db.measures import Tier
from db.profile import BottleneckReport
from db.profile import Profile as Profile


class DeviceKind(StrEnum):
    """Where candidates are judged."""

    CUDA = "cuda"
    CPU = "cpu"


class LatencyKind(StrEnum):
    """Measured on hardware or computed by the model. The two never meet in a grid or a column."""

    MEASURED = "measured"
    MODELLED = "modelled"


class PrecisionClass(StrEnum):
    """`reference`: error at most 10 times the reference's own against float64. `relaxed`: passed, but only so."""

    REFERENCE = "reference"
    RELAXED = "relaxed"


class Gate(StrEnum):
    """The gates of the cascade, in the order in which they run."""

    STATIC = "static"
    CORRECTNESS = "correctness"
    MODEL = "model"
    INTEGRITY = "integrity"
    SPEED = "speed"


class Outcome(StrEnum):
    """What a verdict says. Only `correct` programs have a latency, enter a grid and become parents."""

    CORRECT = "correct"
    FAILED = "failed"
    UNSUPPORTED = "unsupported"  # the interpreter cannot run it: not wrong, not judged


class EntryPoint(StrEnum):
    """The name that a program must define."""

    MODEL = "ModelNew"
    FUNCTION = "kernel_function"


# ---------------------------------------------------------------------------------------------------------- problem


class Workload(Record):
    """One concrete setting of a problem: the module-level sizes that its source is loaded with.

    `role` is `full` (fills a GPU, is timed) or `small` (fits the interpreter, is checked). `layout` says how the input
    tensors lie in memory: as `get_inputs` makes them, with the last two dimensions transposed there, or one element off
    the alignment of an allocation.
    """

    name: str
    role: Literal["full", "small"]
    sizes: dict[str, int | float] = Field(default_factory=dict)
    layout: Literal["plain", "transposed", "unaligned"] = "plain"


class Tolerance(Record):
    """Elementwise bound: abs(candidate - reference) <= atol + rtol * abs(reference)."""

    rtol: float = Field(gt=0)
    atol: float = Field(gt=0)


class Problem(Record):
    """An operation to make faster: a reference (source text), its workloads, and optional seed programs.

    `kind` is `kernelbench` (the source defines `Model`, `get_inputs`, `get_init_inputs`) or `triton` (it defines
    `kernel_function` and `get_inputs`; the source is its own reference and its first seed).
    """

    name: str
    kind: Literal["kernelbench", "triton"]
    source: str
    workloads: tuple[Workload, ...]
    tolerances: dict[str, Tolerance] = Field(default_factory=dict)  # by output dtype; empty: the table of configs/
    seeds: tuple[str, ...] = ()
    varies: tuple[str, ...] = ()  # sizes that hidden workloads may change; what is not named is fixed
    layouts: tuple[Literal["transposed", "unaligned"], ...] = ()  # that inputs may have besides the one of `get_inputs`

    @model_validator(mode="before")
    @classmethod
    def _drop_computed(cls, data: Any) -> Any:
        return _without(data, "problem_id")

    @model_validator(mode="after")
    def _has_both_roles(self) -> Problem:
        missing = {"full", "small"} - {w.role for w in self.workloads}
        if missing:
            raise ValueError(f"problem {self.name!r} needs a workload of role {', '.join(sorted(missing))}")
        return self

    @computed_field  # type: ignore[prop-decorator]
    @property
    def problem_id(self) -> str:
        """Content hash over kind, canonical source, workloads and tolerances; seeds do not change what is asked.

        What may vary is said in the source.
        """
        workloads = [w.model_dump_json(exclude={"layout"}) for w in self.workloads]
        tolerances = [f"{dtype}:{t.rtol!r}:{t.atol!r}" for dtype, t in sorted(self.tolerances.items())]
        return content_hash(self.kind, program_id_of(self.source, "Model"), *workloads, "|", *tolerances)

    @property
    def entry_point(self) -> EntryPoint:
        return EntryPoint.MODEL if self.kind == "kernelbench" else EntryPoint.FUNCTION

    @property
    def full(self) -> Workload:
        """The workload that is timed."""
        return next(w for w in self.workloads if w.role == "full")

    @property
    def small(self) -> Workload:
        """The workload that fits the interpreter."""
        return next(w for w in self.workloads if w.role == "small")


class Hardware(Record):
    """A GPU as the model and the floor need it. Rates are dense, not sparse; `source` says where a figure is from."""

    name: str  # as torch reports it, or the name of the target: "NVIDIA H200", "H100"
    target: str  # key of configs/hardware.yaml: "h200"
    compute_capability: tuple[int, int]
    n_sms: int = Field(gt=0)
    dram_gb_s: float = Field(gt=0)  # achievable bandwidth, bytes read plus written, in 1e9 bytes a second
    l2_bytes: int = Field(gt=0)
    l2_gb_s: float = Field(gt=0)
    dram_bytes: int = Field(gt=0)
    tflops: dict[str, float]  # by kind: "fp32", "tf32", "fp16", "bf16", "int8", "fp64"; tensor cores where they apply
    shared_bytes_per_sm: int = Field(gt=0)
    shared_bytes_per_block: int = Field(gt=0)
    registers_per_sm: int = 65536
    max_threads_per_sm: int = 2048
    max_blocks_per_sm: int = 32
    sm_clock_ghz: float = Field(gt=0)
    launch_us: float = 2.0  # time of an empty kernel inside a graph

    @property
    def hardware_id(self) -> str:
        return self.name.lower().replace(" ", "-")


# -------------------------------------------------------------------------------------------------------- candidate


SEED = "seed"
"""The operator of a program that a run started from."""

CONFIRM = "confirm"
"""The operator of a second judgement of a program that stood out. It replaces what was claimed before."""


class Lineage(Record):
    """Where a program comes from: the parents it was made of and who made it."""

    operator: str  # "seed", "retune", "crossover", "migrate", ...
    technique: str = ""  # the named optimisation that the operator applied
    parents: tuple[str, ...] = ()  # program ids
    detail: str = ""  # what was changed, in words: "BLOCK 1024 -> 4096"
    diagnosis: str = ""  # why it was changed, where somebody planned it: a construct, and what is wrong with it
    model: str = ""  # the language model, where there was one
    prompt_hash: str = ""
    state: str = ""  # key of the parent's performance state, when the technique was chosen
    predicted_octaves: float | None = None  # what the knowledge base expected: log2 of parent over child latency
    seeded_from: str = ""  # archive path or file of a seed, or the program that another island found first

    @property
    def is_from_scratch(self) -> bool:
        """Whether a language model wrote the program from the reference alone, without a parent that was right."""
        return bool(self.model) and not self.parents


class Candidate(Record):
    """A proposed source. `candidate_id` is unique in an archive and ties `ask` to `tell`."""

    candidate_id: str
    run_id: str
    problem_id: str
    island: int = Field(ge=0)
    source: str
    entry_point: EntryPoint
    lineage: Lineage

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def program_id(self) -> str:
        """Computed once, and carried along from process to process."""
        return program_id_of(self.source, self.entry_point)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's; a copy with another source has another id."""
        copied = super().model_copy(update=update, deep=deep)
        if update and not {"source", "entry_point"}.isdisjoint(update):
            copied.__dict__.pop("program_id", None)
        return copied

    @model_validator(mode="before")
    @classmethod
    def _drop_computed(cls, data: Any) -> Any:
        return _without(data, "program_id")


class Program(Record):
    """Judged and stored source: one row per `program_id`, however often it was proposed."""

    program_id: str
    problem_id: str
    source: str
    entry_point: EntryPoint


# ---------------------------------------------------------------------------------------------------------- capture


class TensorSpec(Record):
    """Shape, dtype and strides (in elements) of a tensor, without its data. `dtype` as torch prints it: "float32"."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] = ()


class LaunchTraffic(Record):
    """What a launch asks of memory and of the arithmetic units, extrapolated from traced programs."""

    load_bytes: float  # requested by all programs
    store_bytes: float
    dram_read_bytes: float  # after the rule for L2
    dram_write_bytes: float
    flops: dict[str, float] = Field(default_factory=dict)  # by kind, as in Hardware.tflops; "sfu" for exp, log, ...
    sector_efficiency: float = 1.0  # requested bytes over bytes of touched 32-byte sectors
    latency_us: float = 0.0  # modelled


class Launch(Record):
    """One captured kernel launch, compiled for a target. `text_hash` is over the `.text` bytes of the cubin."""

    kernel: str
    grid: tuple[int, int, int]
    num_warps: int
    shared_bytes: int
    text_hash: str
    binding_hash: str  # which argument is bound to which tensor, storage offset or scalar
    n_registers: int = 0
    spill_bytes: int = 0  # STACK of cuobjdump, per thread
    occupancy: float = 0.0  # theoretical: resident warps over the maximum, in [0, 1]
    occupancy_limiter: str = ""  # "registers", "shared", "threads", "blocks", "grid"
    num_stages: int = 0
    load_vector_bytes: int = 0  # widest load from global memory by one thread, 0: unknown
    has_async_copies: bool = False  # loads are pipelined through shared memory (cp.async or TMA)
    constexprs: dict[str, Any] = Field(default_factory=dict)
    traffic: LaunchTraffic | None = None  # filled by the trace, for the model
    tensors: tuple[str, ...] = ()  # what its pointers are bound to, as `Capture.outputs` says it
    arguments: tuple[str, ...] = ()  # all but constexprs: tensors by dtype, shape and strides, others by type and value
    unwritten_reads: tuple[str, ...] = ()  # arguments through which it reads what nobody has written in this call


class TorchOp(Record):
    """One operation of torch that host code called between launches."""

    name: str  # "aten.sum.dim_IntList"
    moved_bytes: int
    binding: str = ""  # launches before it, then its operands: storages with offsets, scalars
    flops: dict[str, float] = Field(default_factory=dict)  # of products, convolutions, attention; by kind, as in tflops


class Capture(Record):
    """Every launch and every torch operation of one forward at one workload."""

    workload: str
    target: str
    triton_version: str
    launches: tuple[Launch, ...]
    torch_ops: tuple[TorchOp, ...] = ()
    outputs: tuple[str, ...] = ()  # storage, offset, dtype, shape and strides of each returned tensor

    @property
    def fingerprint(self) -> str:
        """Equal for programs that are the same work written differently, under the same Triton."""
        parts = [self.workload, self.target, self.triton_version]
        for launch in self.launches:
            parts += [launch.text_hash, str(launch.shared_bytes), str(launch.num_warps), repr(launch.grid)]
            parts.append(launch.binding_hash)
        for op in self.torch_ops:
            parts += [op.name, op.binding]
        parts += self.outputs
        return content_hash(*parts)


# ---------------------------------------------------------------------------------------------------------- verdict


class GateResult(Record):
    """One gate's answer. `reason` is something an operator can act on; empty when it passed."""

    gate: Gate
    passed: bool
    reason: str = ""
    evidence: dict[str, Any] = Field(default_factory=dict)
    seconds: float = 0.0

    @model_validator(mode="after")
    def _says_why(self) -> GateResult:
        if not self.passed and not self.reason:
            raise ValueError(f"gate {self.gate} refused without a reason")
        return self


class Latency(Record):
    """Latency of a program and of its baseline, all in microseconds, taken side by side by one method.

    `device_us` ranks; `low_us` and `high_us` bound it (95%). `call_us` is what a caller waits, host code included.
    """

    kind: LatencyKind
    method: Literal["graph", "events", "model"]
    device_us: float
    low_us: float
    high_us: float
    baseline_us: float
    baseline_name: str  # "eager", "compile", "max-autotune", "seed"
    call_us: float | None = None
    baseline_call_us: float | None = None
    floor_us: float | None = None  # bytes and operations at measured rates: nothing honest is faster

    @field_validator("device_us", "low_us", "high_us", "baseline_us")
    @classmethod
    def _is_a_time(cls, value: float) -> float:
        if not math.isfinite(value) or value <= 0:
            raise ValueError(f"a latency must be finite and positive, got {value!r}")
        return value

    @property
    def speedup(self) -> float:
        """Baseline over program, device latency; above 1 is faster than the baseline."""
        return self.baseline_us / self.device_us


class Verdict(Record):
    """The whole outcome of judging one candidate. Its outcome decides which parts may be present."""

    candidate_id: str
    run_id: str
    problem_id: str
    program_id: str
    hardware_id: str
    outcome: Outcome
    gates: tuple[GateResult, ...]
    precision: PrecisionClass = PrecisionClass.REFERENCE
    error_ratio: float | None = None  # d_opt / d_ref against float64
    latency: Latency | None = None
    profile: Profile | None = None
    tier: Tier | None = None
    bottleneck: BottleneckReport | None = None
    replaces_baseline: bool = False  # passed the speed gate
    fingerprint: str = ""
    captures: tuple[Capture, ...] = ()
    duplicate_of: str = ""  # program id whose verdict this repeats
    versions: dict[str, str] = Field(default_factory=dict)  # torch, triton, driver
    seconds: dict[str, float] = Field(default_factory=dict)  # by phase: prepare, context, wait, correctness, timing

    @model_validator(mode="after")
    def _is_consistent(self) -> Verdict:
        has_latency = self.latency is not None and self.tier is not None
        refused = [g for g in self.gates if not g.passed and g.gate is not Gate.SPEED]
        if self.outcome is Outcome.CORRECT and (not has_latency or refused):
            raise ValueError(f"a correct verdict needs a latency, a tier and no refusing gate: {self.candidate_id}")
        if self.outcome is not Outcome.CORRECT and (self.latency is not None or self.replaces_baseline):
            raise ValueError(f"a {self.outcome} verdict must not have a latency: {self.candidate_id}")
        if self.outcome is Outcome.FAILED and not refused:
            raise ValueError(f"a failed verdict needs the gate that refused: {self.candidate_id}")
        return self

    @property
    def is_correct(self) -> bool:
        return self.outcome is Outcome.CORRECT

    @property
    def reason(self) -> str:
        """Why it was refused, or the empty string."""
        return next((g.reason for g in self.gates if not g.passed), "")


class Evaluation(Record):
    """A candidate with its verdict: what the archive stores, one row each."""

    candidate: Candidate
    verdict: Verdict
    created_at: float = Field(default_factory=time.time)  # seconds since the epoch

    @model_validator(mode="after")
    def _belong_together(self) -> Evaluation:
        if self.candidate.candidate_id != self.verdict.candidate_id:
            raise ValueError(f"verdict {self.verdict.candidate_id} is not for {self.candidate.candidate_id}")
        return self


# -------------------------------------------------------------------------------------------------------------- run


class RunStatus(StrEnum):
    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    WAITING = "waiting"  # for answers of language models, which somebody carries


class Run(Record):
    """One search: a problem, its configuration, and where it was judged."""

    run_id: str
    problem_id: str
    rng_seed: int
    device: DeviceKind
    hardware: Hardware
    precision: PrecisionClass
    latency_kind: LatencyKind
    config: dict[str, Any]
    versions: dict[str, str] = Field(default_factory=dict)
    status: RunStatus = RunStatus.RUNNING
    started_at: float = 0.0  # seconds since the epoch
    finished_at: float | None = None
    stop_reason: str = ""


def _without(data: Any, *names: str) -> Any:
    """A dict without computed fields, so that a dumped record can be loaded again."""
    return {k: v for k, v in data.items() if k not in names} if isinstance(data, dict) else data
