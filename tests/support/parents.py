"""Parents for operators: a source with the verdict of a judge that liked it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from db.hashing import program_id_of
from db.measures import Tier
from db.records import Capture, Latency, LatencyKind, Launch, Outcome, Verdict
from islands.operators.base import Parent

KERNELS = Path(__file__).parents[1] / "data" / "kernels"


def kernel_sources() -> dict[str, str]:
    """Name and source of every program in tests/data/kernels, by name."""
    return {path.stem: path.read_text() for path in sorted(KERNELS.glob("*.py"))}


def parent_of(source: str, launches: Mapping[str, Mapping[str, Any]] | None = None, n_programs: int = 4096) -> Parent:
    """A correct parent. `launches` are the compile-time parameters that each kernel was seen with."""
    entry = "ModelNew" if "class ModelNew" in source else "kernel_function"
    program_id = program_id_of(source, entry)
    seen = tuple(
        Launch(
            kernel=kernel,
            grid=(n_programs, 1, 1),
            num_warps=4,
            shared_bytes=0,
            text_hash="0",
            binding_hash="0",
            constexprs=dict(constexprs),
        )
        for kernel, constexprs in (launches or {}).items()
    )
    captures = (Capture(workload="full", target="h200", triton_version="3.7.1", launches=seen),) if seen else ()
    latency = Latency(
        kind=LatencyKind.MODELLED,
        method="model",
        device_us=10.0,
        low_us=9.0,
        high_us=11.0,
        baseline_us=20.0,
        baseline_name="eager",
    )
    verdict = Verdict(
        candidate_id=f"candidate-{program_id}",
        run_id="run",
        problem_id="problem",
        program_id=program_id,
        hardware_id="nvidia-h200",
        outcome=Outcome.CORRECT,
        gates=(),
        latency=latency,
        tier=Tier.MEMORY_BOUND,
        captures=captures,
    )
    return Parent(source, program_id, verdict)
