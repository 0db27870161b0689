"""Small records for tests of the archive. Every argument that a test cares about is named at the call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from db.archive import ProgramArchive
from db.hashing import program_id_of
from db.measures import Tier
from db.records import (
    Candidate,
    Capture,
    DeviceKind,
    Evaluation,
    Gate,
    GateResult,
    Hardware,
    Latency,
    LatencyKind,
    Launch,
    LaunchTraffic,
    Lineage,
    Outcome,
    PrecisionClass,
    Problem,
    Profile,
    Run,
    RunStatus,
    TorchOp,
    Verdict,
    Workload,
)

FUNCTION = "def kernel_function(x):\n    return x + {0}\n"


def problem(name: str = "softmax", n: int = 4096) -> Problem:
    return Problem(
        name=name,
        kind="triton",
        source=FUNCTION.format(0) + f"\n\ndef get_inputs():\n    return [{name!r}]\n",
        workloads=(Workload(name="full", role="full", sizes={"n": n}), Workload(name="small", role="small")),
        seeds=(FUNCTION.format(0),),
    )


def hardware(name: str = "NVIDIA H200") -> Hardware:
    return Hardware(
        name=name,
        target="h200",
        compute_capability=(9, 0),
        n_sms=132,
        dram_gb_s=4000,
        l2_bytes=50_000_000,
        l2_gb_s=8000,
        dram_bytes=140_000_000_000,
        tflops={"fp32": 60.0, "fp16": 900.0},
        shared_bytes_per_sm=233472,
        shared_bytes_per_block=232448,
        sm_clock_ghz=1.7,
    )


def run(
    run_id: str = "r1",
    *,
    of: Problem | None = None,
    precision: PrecisionClass = PrecisionClass.REFERENCE,
    latency_kind: LatencyKind = LatencyKind.MEASURED,
    status: RunStatus = RunStatus.RUNNING,
    started_at: float = 1_700_000_000.25,
) -> Run:
    return Run(
        run_id=run_id,
        problem_id=(of or problem()).problem_id,
        rng_seed=7,
        device=DeviceKind.CUDA,
        hardware=hardware(),
        precision=precision,
        latency_kind=latency_kind,
        config={"islands": 8, "nested": {"a": [1, 2.5, None]}},
        status=status,
        started_at=started_at,
    )


def evaluation(
    n: int = 0,
    *,
    of: Problem | None = None,
    run_id: str = "r1",
    island: int = 0,
    latency_us: float | None = 100.0,
    tier: Tier = Tier.MEMORY_BOUND,
    kind: LatencyKind = LatencyKind.MEASURED,
    precision: PrecisionClass = PrecisionClass.REFERENCE,
    hardware_id: str = "nvidia-h200",
    parents: Sequence[str] = (),
    source: str | None = None,
    fingerprint: str | None = None,
    duplicate_of: str = "",
) -> Evaluation:
    """Candidate `n` of an island: correct, or refused by the correctness gate where `latency_us` is None."""
    asked = of or problem()
    candidate = Candidate(
        candidate_id=f"{run_id}-{island}-{n:06d}",
        run_id=run_id,
        problem_id=asked.problem_id,
        island=island,
        source=FUNCTION.format(n) if source is None else source,
        entry_point=asked.entry_point,
        lineage=Lineage(operator="retune", technique="num_warps", parents=tuple(parents), detail=f"step {n}"),
    )
    refused = GateResult(gate=Gate.CORRECTNESS, passed=False, reason="element 3 differs", evidence={"at": [3]})
    passed = tuple(GateResult(gate=gate, passed=True, seconds=0.25) for gate in Gate)
    verdict = Verdict(
        candidate_id=candidate.candidate_id,
        run_id=run_id,
        problem_id=asked.problem_id,
        program_id=candidate.program_id,
        hardware_id=hardware_id,
        outcome=Outcome.FAILED if latency_us is None else Outcome.CORRECT,
        gates=(refused,) if latency_us is None else passed,
        precision=precision,
        latency=None if latency_us is None else latency(latency_us, kind),
        profile=None if latency_us is None else Profile(source="compiled", compute_sol_pct=10, memory_sol_pct=70),
        tier=None if latency_us is None else tier,
        replaces_baseline=latency_us is not None and latency_us < 400,
        fingerprint=f"fp-{n}" if fingerprint is None else fingerprint,
        captures=(capture(),),
        duplicate_of=duplicate_of,
        versions={"triton": "3.7.1"},
        seconds={"prepare": 0.5},
    )
    return Evaluation(candidate=candidate, verdict=verdict)


def latency(device_us: float, kind: LatencyKind = LatencyKind.MEASURED) -> Latency:
    return Latency(
        kind=kind,
        method="graph" if kind is LatencyKind.MEASURED else "model",
        device_us=device_us,
        low_us=device_us * 0.99,
        high_us=device_us * 1.01,
        baseline_us=400.0,
        baseline_name="max-autotune",
        call_us=device_us + 5,
    )


def capture() -> Capture:
    launch = Launch(
        kernel="k",
        grid=(4096, 1, 1),
        num_warps=8,
        shared_bytes=1024,
        text_hash="a" * 16,
        binding_hash="b" * 16,
        constexprs={"BLOCK": 1024},
        traffic=LaunchTraffic(load_bytes=1e9, store_bytes=1e9, dram_read_bytes=1e9, dram_write_bytes=1e9),
    )
    return Capture(
        workload="full",
        target="h200",
        triton_version="3.7.1",
        launches=(launch,),
        torch_ops=(TorchOp(name="aten.sum", moved_bytes=4096),),
    )


def program_of(n: int) -> str:
    """The id of the program of `evaluation(n)`."""
    return program_id_of(FUNCTION.format(n), "kernel_function")


def filled(path: Path, evaluations: Sequence[Evaluation]) -> ProgramArchive:
    """A new archive with the usual problem, the run `r1` and these evaluations."""
    archive = ProgramArchive.open(path)
    archive.add_problem(problem())
    archive.add_run(run())
    archive.insert(evaluations)
    return archive
