"""Facts: what a prompt says, taken from records. Every builder is pure, and the same records give the same facts."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from db.opinions import ProgramOpinion
from db.profile import BottleneckReport, Rule
from db.records import (
    Evaluation,
    Gate,
    GateResult,
    Hardware,
    Latency,
    Outcome,
    PrecisionClass,
    Problem,
    Verdict,
    Workload,
)
from db.techniques import CatalogueEntry
from islands.knowledge.experience import Experience
from islands.llm.plans import Plan
from islands.prompts.figures import bytes_in_words, figures_of, rules_of


class ProblemFacts(NamedTuple):
    """What is asked: a reference, the workloads it is judged at, and how exact an answer must be."""

    name: str
    entry_point: str
    reference: str
    workloads: tuple[str, ...]
    tolerances: tuple[str, ...]
    is_relaxed: bool  # in the search for programs of lower precision
    allowed_operations: tuple[str, ...]  # of libraries, that host code may call because the compiled baseline does


class ProgramFacts(NamedTuple):
    """A judged program: its source, its verdict, and why it is not faster."""

    source: str
    verdict: tuple[str, ...]
    tier: str
    limit: str
    figures: tuple[str, ...]
    rules: tuple[str, ...]  # estimates for the whole kernel first
    strengths: tuple[str, ...] = ()  # against the other parent of a crossover
    opinion: tuple[str, ...] = ()  # what a judge model holds against it


class StepFacts(NamedTuple):
    """One step of a lineage."""

    what: str
    came_of_it: str


class TechniqueFacts(NamedTuple):
    """A technique that knowledge suggests."""

    name: str
    what: str  # the instruction, or what it changes
    preconditions: tuple[str, ...]
    risks: tuple[str, ...]
    expected: str  # in words; empty where nothing is predicted


class FailureFacts(NamedTuple):
    """Why a gate refused a program, and the lines that its reason names."""

    gate: str
    reason: str
    lines: tuple[str, ...]  # "12: tl.store(...)"
    tries_left: int


class FusionFacts(NamedTuple):
    """Two kernels that run one after the other, and what the first leaves in memory for the second."""

    first: str
    second: str
    buffers: tuple[str, ...]  # "t: float32 (4096, 1024), 16.78 MB"
    resources: tuple[str, ...] = ()  # what each of them takes, and waits for: its counters


class AttemptFacts(NamedTuple):
    """One attempt that was judged."""

    what: str
    why: str  # the plan's diagnosis; empty where there was no plan
    expected: str
    came_of_it: str
    known_cause: str  # what the profiles say; empty where they say nothing


class Facts(NamedTuple):
    """Everything that templates may show; each shows a part."""

    problem: ProblemFacts
    gpu: tuple[str, ...] = ()
    notes: str = ""  # on the installed Triton
    parents: tuple[ProgramFacts, ...] = ()
    lineage: tuple[StepFacts, ...] = ()  # the oldest first
    inspirations: tuple[ProgramFacts, ...] = ()  # the most useful first
    techniques: tuple[TechniqueFacts, ...] = ()  # the best first
    memory: tuple[str, ...] = ()  # the oldest first
    advice: tuple[str, ...] = ()  # what to try next, the oldest first
    avoid: tuple[str, ...] = ()
    n_plans: int = 4
    plan: Plan | None = None
    failure: FailureFacts | None = None
    refusal: str = ""  # why an answer could not be read
    fusion: FusionFacts | None = None
    attempts: tuple[AttemptFacts, ...] = ()


# ----------------------------------------------------------------------------------------------------- what is asked


def problem_facts(
    problem: Problem,
    precision: PrecisionClass = PrecisionClass.REFERENCE,
    allowed_operations: Collection[str] = (),
) -> ProblemFacts:
    """`allowed_operations` as the static gate takes them: "aten.mm"."""
    return ProblemFacts(
        name=problem.name,
        entry_point=problem.entry_point.value,
        reference=problem.source,
        workloads=tuple(_workload(one) for one in problem.workloads),
        tolerances=tuple(
            f"{dtype}: rtol {t.rtol:g}, atol {t.atol:g}" for dtype, t in sorted(problem.tolerances.items())
        ),
        is_relaxed=precision is PrecisionClass.RELAXED,
        allowed_operations=tuple(sorted(allowed_operations)),
    )


def _workload(workload: Workload) -> str:
    sizes = ", ".join(f"{name} = {value}" for name, value in workload.sizes.items()) or "as the source has them"
    use = "timed, and checked" if workload.role == "full" else "checked"
    return f"{workload.name} ({use}): {sizes}"


def gpu_facts(hardware: Hardware) -> tuple[str, ...]:
    """The specification of a GPU, one property a line."""
    major, minor = hardware.compute_capability
    rates = ", ".join(f"{kind} {rate:.0f}" for kind, rate in hardware.tflops.items())
    return (
        f"{hardware.name}, compute capability {major}.{minor}, {hardware.n_sms} SMs at {hardware.sm_clock_ghz:.2f} GHz",
        f"DRAM: {hardware.dram_gb_s:.0f} GB/s that well-tuned code reaches, {hardware.dram_bytes / 1e9:.0f} GB",
        f"L2: {hardware.l2_bytes / 2**20:.0f} MiB, about {hardware.l2_gb_s:.0f} GB/s",
        f"dense TFLOP/s that well-tuned code reaches: {rates}",
        f"shared memory: {hardware.shared_bytes_per_sm // 1024} KiB per SM, at most "
        f"{hardware.shared_bytes_per_block // 1024} KiB per program",
        f"per SM: {hardware.registers_per_sm} registers, {hardware.max_threads_per_sm} threads, "
        f"{hardware.max_blocks_per_sm} programs",
        f"an empty kernel takes {hardware.launch_us:.1f} us",
    )


# ---------------------------------------------------------------------------------------------------------- programs


def program_facts(
    source: str,
    verdict: Verdict,
    hardware: Hardware | None = None,
    strengths: Sequence[str] = (),
    opinion: ProgramOpinion | None = None,
) -> ProgramFacts:
    report = verdict.bottleneck
    return ProgramFacts(
        source=source,
        verdict=verdict_in_words(verdict),
        tier=verdict.tier.replace("_", " ") if verdict.tier else "",
        limit=_limit(report) if report else "",
        figures=figures_of(verdict.profile, verdict.tier, hardware),
        rules=rules_of(_rules(verdict)),
        strengths=tuple(strengths),
        opinion=opinion_in_words(opinion) if opinion else (),
    )


def opinion_in_words(opinion: ProgramOpinion) -> tuple[str, ...]:
    """What a judge holds against a program, one concern a line; empty where it found nothing."""
    if not opinion.concerns:
        return ()
    lines = [
        f"{one.kind.replace('_', ' ')}{f' (line {one.line})' if one.line else ''}: {one.what}"
        for one in opinion.concerns
    ]
    return (*lines, f"advice: {opinion.advice}") if opinion.advice else tuple(lines)


def verdict_in_words(verdict: Verdict) -> tuple[str, ...]:
    """What the judge said, one fact a line."""
    if verdict.latency is None:
        return tuple(f"refused by gate {g.gate}: {g.reason}" for g in verdict.gates if not g.passed) or (
            f"{verdict.outcome}: not judged",
        )
    lines = list(_latency(verdict.latency))
    ratio = f"; its error is {verdict.error_ratio:.1f} times the reference's own" if verdict.error_ratio else ""
    lines.append(f"correct, precision class {verdict.precision}{ratio}")
    lines += [f"gate {g.gate} refused: {g.reason}" for g in verdict.gates if not g.passed]
    return tuple(lines)


def _latency(latency: Latency) -> list[str]:
    lines = [
        f"latency {latency.device_us:.2f} us ({latency.low_us:.2f} to {latency.high_us:.2f}), {latency.kind}",
        f"baseline {latency.baseline_name}: {latency.baseline_us:.2f} us, so the speed-up is {latency.speedup:.2f}x",
    ]
    if latency.call_us is not None and latency.baseline_call_us is not None:
        both = f"{latency.call_us:.2f} us, baseline {latency.baseline_call_us:.2f} us"
        lines.append(f"a call, host code included: {both}")
    if latency.floor_us:
        lines.append(f"bytes and operations alone take {latency.floor_us:.2f} us: nothing honest is faster")
    return lines


def _limit(report: BottleneckReport) -> str:
    second = f", then {report.state.secondary.replace('_', ' ')}" if report.state.secondary else ""
    kind = f"{report.state.kernel_kind} kernel"
    return f"{report.limit} (primary bottleneck: {report.state.primary.replace('_', ' ')}{second}; {kind})"


def _rules(verdict: Verdict) -> tuple[Rule, ...]:
    if verdict.bottleneck and verdict.bottleneck.rules:
        return verdict.bottleneck.rules
    return verdict.profile.rules[:3] if verdict.profile else ()


# ----------------------------------------------------------------------------------------------------------- history


def gain_in_words(octaves: float | None) -> str:
    """What a gain in octaves is: "1.12x faster", "1.30x slower"."""
    if octaves is None:
        return ""
    factor = 2 ** abs(octaves)
    if factor < 1.005:
        return "as fast as before"
    return f"{factor:.2f}x {'faster' if octaves > 0 else 'slower'}"


def lineage_steps(chain: Sequence[Evaluation]) -> tuple[StepFacts, ...]:
    """The way to a program, oldest ancestor first, the program itself last."""
    steps = []
    for before, after in zip([None, *chain], chain, strict=False):
        lineage = after.candidate.lineage
        what = ": ".join(part for part in (lineage.technique or lineage.operator, lineage.detail) if part)
        steps.append(StepFacts(what, _outcome(after.verdict, before.verdict if before else None)))
    return tuple(steps)


def _outcome(verdict: Verdict, before: Verdict | None) -> str:
    if verdict.outcome is not Outcome.CORRECT or verdict.latency is None:
        return verdict.reason or str(verdict.outcome)
    time = f"{verdict.latency.device_us:.2f} us"
    if before is None or before.latency is None or before.latency.kind is not verdict.latency.kind:
        return time
    gain = gain_in_words(math.log2(before.latency.device_us / verdict.latency.device_us))
    return f"{time}, {gain}"


def technique_facts(
    entries: Sequence[CatalogueEntry], predicted_octaves: Mapping[str, float] | None = None
) -> tuple[TechniqueFacts, ...]:
    """Entries of the catalogue, with what knowledge expects of each."""
    predicted = predicted_octaves or {}
    return tuple(
        TechniqueFacts(
            name=entry.name,
            what=entry.applied_by.instruction or entry.changes,
            preconditions=entry.preconditions,
            risks=entry.risks,
            expected=gain_in_words(predicted.get(entry.name)),
        )
        for entry in entries
    )


def memory_facts(held: Sequence[Experience], lessons: Sequence[str] = ()) -> tuple[str, ...]:
    """The experience memory in words, after the lessons that reflection wrote."""
    return (*lessons, *(_experience(one) for one in held))


def _experience(one: Experience) -> str:
    state = one.state.split("/")
    where = f" on a {state[3]} kernel limited by {state[0].replace('_', ' ')}" if len(state) == 5 else ""
    move = f" ({one.move})" if one.move else ""
    cause = f": {one.cause}" if one.cause else ""
    return f"{one.technique}{move}{where} was {gain_in_words(one.octaves)}{cause}"


def avoid_facts(
    flagged: Sequence[tuple[str, str]], kernel_kind: str, excluded: Collection[str] = ()
) -> tuple[str, ...]:
    """What not to try: techniques flagged for this kind of kernel, and directions that were taken too often of late."""
    hopeless = [f"{name}: hardly ever works on {kind} kernels" for kind, name in flagged if kind == kernel_kind]
    return (*hopeless, *(f"{direction}: taken too often of late" for direction in sorted(excluded)))


# ---------------------------------------------------------------------------------------------------------- failures

N_AROUND = 2  # lines shown before and after each that a reason names
MOST_NAMED = 5
_LINE = re.compile(r"\bline (\d{1,5})\b")


def failure_facts(result: GateResult, source: str, tries_left: int) -> FailureFacts:
    """Why a gate refused, with the lines of the source that it names and those around them."""
    lines = source.split("\n")
    listed = [n for n in result.evidence.get("lines", []) if isinstance(n, int)]
    named = [*listed, *(int(n) for n in _LINE.findall(result.reason))][:MOST_NAMED]
    shown = sorted({k for n in named for k in range(n - N_AROUND, n + N_AROUND + 1) if 1 <= k <= len(lines)})
    return FailureFacts(result.gate.value, result.reason, tuple(f"{k}: {lines[k - 1]}" for k in shown), tries_left)


def first_refusal(verdict: Verdict) -> GateResult | None:
    """The gate that ended a judgement; None for a program that may be a parent."""
    return next((g for g in verdict.gates if not g.passed and g.gate is not Gate.SPEED), None)


def buffer_in_words(name: str, dtype: str, shape: Sequence[int], n_bytes: int) -> str:
    """An intermediate buffer, for `FusionFacts`."""
    return f"{name}: {dtype} ({', '.join(str(n) for n in shape)}), {bytes_in_words(n_bytes)}"
