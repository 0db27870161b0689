"""Facts for prompts: a judged softmax on an H200, made from records as a run makes them."""

from __future__ import annotations

from typing import Any

from db.measures import Tier
from db.opinions import Concern, ProgramOpinion
from db.profile import Bottleneck, BottleneckReport, KernelKind, PerformanceState, Profile, Rule, Stall
from db.records import (
    Candidate,
    EntryPoint,
    Evaluation,
    Gate,
    GateResult,
    Hardware,
    Latency,
    LatencyKind,
    Lineage,
    Outcome,
    Problem,
    Tolerance,
    Verdict,
    Workload,
)
from db.techniques import load_catalogue
from islands.knowledge import Experience
from islands.llm.plans import Plan
from islands.prompts.comparison import strengths_of
from islands.prompts.facts import (
    AttemptFacts,
    Facts,
    FusionFacts,
    ProgramFacts,
    avoid_facts,
    buffer_in_words,
    failure_facts,
    gpu_facts,
    lineage_steps,
    memory_facts,
    problem_facts,
    program_facts,
    technique_facts,
)
from islands.prompts.notes import notes_on
from tests.support.llm_edits import real_programs
from tests.support.parents import kernel_sources

REFERENCE = """\
import torch
import torch.nn as nn

n_rows = 4096
n_cols = 65536


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(n_rows, n_cols)]


def get_init_inputs():
    return []
"""

PROBLEM = Problem(
    name="softmax",
    kind="kernelbench",
    source=REFERENCE,
    workloads=(
        Workload(name="full", role="full", sizes={"n_rows": 4096, "n_cols": 65536}),
        Workload(name="small", role="small", sizes={"n_rows": 3, "n_cols": 2501}),
    ),
    tolerances={"float32": Tolerance(rtol=1e-4, atol=1e-7)},
)
GPU = Hardware(
    name="NVIDIA H200",
    target="h200",
    compute_capability=(9, 0),
    n_sms=132,
    dram_gb_s=4300.8,
    l2_bytes=52428800,
    l2_gb_s=6000.0,
    dram_bytes=150754820096,
    tflops={"fp32": 53.6, "tf32": 395.6, "bf16": 791.2},
    shared_bytes_per_sm=233472,
    shared_bytes_per_block=232448,
    sm_clock_ghz=1.98,
    launch_us=1.0,
)
STATE = PerformanceState(
    primary=Bottleneck.MEMORY_LATENCY,
    secondary=Bottleneck.DRAM_BANDWIDTH,
    limiter="long_scoreboard",
    kernel_kind=KernelKind.REDUCTION,
    architecture="sm_90",
)
PROFILE = Profile(
    source="ncu",
    duration_us=812.4,
    compute_sol_pct=31.2,
    memory_sol_pct=66.5,
    dram_pct=66.5,
    dram_gb_s=3192.0,
    dram_read_bytes=1.61e9,
    dram_write_bytes=1.07e9,
    l1_pct=24.0,
    l2_pct=41.0,
    l1_hit_pct=0.4,
    l2_hit_pct=48.1,
    issue_pct=29.0,
    n_registers=40,
    spill_bytes=0,
    shared_bytes=32,
    occupancy=0.75,
    achieved_occupancy=0.71,
    occupancy_limiter="registers",
    waves_per_sm=2.59,
    stalls=(
        Stall(reason="long_scoreboard", cycles=21.4, share=0.71),
        Stall(reason="barrier", cycles=3.2, share=0.11),
    ),
    rules=(
        Rule(name="SOLBottleneck", section="SpeedOfLight", message="Memory is used more than compute.", speedup_pct=21),
        Rule(name="CPIStall", section="WarpStateStats", message="Warps wait 21.4 cycles for L1TEX.", speedup_pct=18),
    ),
)


def verdict(latency_us: float = 815.0, **changes: Any) -> Verdict:
    """A correct program on an H200 whose baseline takes 905 us."""
    report = BottleneckReport(
        tier=Tier.MEMORY_BOUND,
        source="ncu",
        state=STATE,
        limit="Bound by memory (66% of speed of light, SMs 31%): warps wait for their loads.",
        rules=PROFILE.rules,
        roofline_efficiency=0.665,
    )
    latency = Latency(
        kind=LatencyKind.MEASURED,
        method="graph",
        device_us=latency_us,
        low_us=latency_us - 2,
        high_us=latency_us + 3,
        baseline_us=905.0,
        baseline_name="max-autotune",
        call_us=latency_us + 9,
        baseline_call_us=921.0,
        floor_us=499.3,
    )
    fields: dict[str, Any] = {
        "candidate_id": "c",
        "run_id": "r",
        "problem_id": PROBLEM.problem_id,
        "program_id": "p",
        "hardware_id": GPU.hardware_id,
        "outcome": Outcome.CORRECT,
        "gates": (GateResult(gate=Gate.STATIC, passed=True),),
        "error_ratio": 1.3,
        "latency": latency,
        "profile": PROFILE,
        "tier": Tier.MEMORY_BOUND,
        "bottleneck": report,
    }
    return Verdict(**{**fields, **changes})


def evaluation(latency_us: float, technique: str, detail: str) -> Evaluation:
    lineage = Lineage(operator=technique or "seed", technique=technique, detail=detail)
    candidate = Candidate(
        candidate_id="c",
        run_id="r",
        problem_id=PROBLEM.problem_id,
        island=0,
        source="",
        entry_point=EntryPoint.MODEL,
        lineage=lineage,
    )
    return Evaluation(candidate=candidate, verdict=verdict(latency_us), created_at=0.0)


def other_parent() -> tuple[str, Verdict]:
    """An online softmax: fewer bytes, more registers."""
    profile = PROFILE.model_copy(
        update={"dram_read_bytes": 1.07e9, "n_registers": 168, "spill_bytes": 24, "occupancy": 0.25, "stalls": ()}
    )
    source = real_programs()["seed_softmax"]
    return source, verdict(790.0, profile=profile, tier=Tier.UNDERUTILIZED)


OPINION = ProgramOpinion(
    program_id="p",
    run_id="r",
    concerns=(Concern(kind="fragile", line=21, what="right for rows of at most 2048 columns"),),
    advice="mask the last tile",
)


def base_facts(source: str | None = None) -> Facts:
    """What mutate and plan are told; `source` is that of the parent."""
    mine = kernel_sources()["row_softmax"] if source is None else source
    chain = [
        evaluation(1105.0, "", "seed of the suite"),
        evaluation(930.0, "tile_size", "TILE of softmax_rows 512 -> 1024"),
        evaluation(815.0, "num_warps", "num_warps of softmax_rows 4 -> 8"),
    ]
    catalogue = load_catalogue()
    names = ("loop_pipeline", "online_softmax")
    held = [
        Experience("num_warps", STATE.key, "num_warps 8", 0.19, "more warps cover for the loads"),
        Experience("exp2", STATE.key, "exp2", -0.3, "the machine code did not change what limits it"),
    ]
    return Facts(
        problem=problem_facts(PROBLEM),
        gpu=gpu_facts(GPU),
        notes=notes_on("3.7.1"),
        parents=(program_facts(mine, verdict(), GPU, opinion=OPINION),),
        lineage=lineage_steps(chain),
        inspirations=(program_facts(*other_parent(), GPU),),
        techniques=technique_facts([catalogue[name] for name in names], {"loop_pipeline": 0.12}),
        memory=memory_facts(held),
        advice=("try num_stages 3 once the loads are coalesced",),
        avoid=avoid_facts([("reduction", "persistent"), ("matmul", "split_k")], "reduction", ["tile_size up"]),
    )


def crossover_facts() -> Facts:
    facts, (source, other) = base_facts(), other_parent()
    first = facts.parents[0]._replace(strengths=strengths_of(verdict(), other))
    second: ProgramFacts = program_facts(source, other, GPU, strengths_of(other, verdict()))
    return facts._replace(parents=(first, second), inspirations=())


PLAN = Plan("loop_pipeline", "the last loop of softmax_rows", "tl.range with num_stages=3", "71% of the waiting", 9.0)

ATTEMPTS = (
    AttemptFacts("num_warps: 8 -> 16", "occupancy is low", "1.10x faster", "1.05x slower", "barriers take longer"),
    AttemptFacts("online_softmax: one walk", "", "", "1.21x faster", ""),
)


def facts_for(name: str) -> Facts:
    """Facts for the prompt of a name."""
    base = base_facts()
    refused = GateResult(
        gate=Gate.STATIC,
        passed=False,
        reason="line 39: torch.sum is not for host code, which may allocate, view and launch; kernels compute",
        evidence={"lines": [39]},
    )
    fusion = FusionFacts(
        "softmax_rows", "scale_rows", (buffer_in_words("t", "float32", (4096, 65536), 4096 * 65536 * 4),)
    )
    return {
        "crossover": crossover_facts(),
        "execute": base._replace(plan=PLAN),
        "repair": base._replace(failure=failure_facts(refused, base.parents[0].source, tries_left=3)),
        "refused": base._replace(refusal="The SEARCH text of block 1 stands nowhere in the program."),
        "synthesize": base._replace(parents=(), lineage=(), inspirations=()),
        "fuse": base._replace(fusion=fusion),
        "reflect": base._replace(attempts=ATTEMPTS),
    }.get(name, base)
