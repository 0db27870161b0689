"""What limits a program, from its profile: pure, and the same answer for the same profile.

The tier decides where to look. Where a unit is well used, the busiest one is the limit and what is waited for comes
second; where none is, what is waited for is the limit.
"""

from __future__ import annotations

from collections.abc import Sequence

from db.measures import Tier
from db.profile import Bottleneck, BottleneckReport, KernelKind, PerformanceState, Profile
from db.records import Capture, PrecisionClass
from db.techniques import techniques_for
from evaluators.profiling.evidence import evidence_for, limit_of
from evaluators.profiling.kinds import kernel_kind
from evaluators.profiling.scores import Scores, dominant_launch, facts_of, latency_scores, throughput_scores
from evaluators.profiling.thresholds import LOW_OCCUPANCY, NAMED_STALL, SECOND_LATENCY, SECOND_THROUGHPUT

N_RULES = 3
N_TECHNIQUES = 8


def diagnose(
    profile: Profile,
    source: str,
    captures: Sequence[Capture],
    architecture: str,
    tier: Tier,
    precision: PrecisionClass = PrecisionClass.REFERENCE,
) -> BottleneckReport:
    """Why a program is not faster.

    Args:
        profile: counters, or what the compiler and the model say. Its `duration_us` is the program's, in all.
        source: of the program; says what the dominant kernel does.
        captures: of the program, that of the timed workload first; may be empty.
        architecture: as compilers name it: "sm_90".
        tier: of the profile's speeds of light.
        precision: of the search; techniques of the relaxed class are no advice in the other.
    """
    launch = dominant_launch(captures)
    kind = kernel_kind(source, profile.dominant or (launch.kernel if launch else ""))
    facts = facts_of(profile, kind, captures)
    primary, secondary = _bottlenecks(throughput_scores(facts), latency_scores(facts), tier)
    limiter = _limiter(profile, primary)
    return BottleneckReport(
        tier=tier,
        source=profile.source,
        state=PerformanceState(
            primary=primary, secondary=secondary, limiter=limiter, kernel_kind=kind, architecture=architecture
        ),
        limit=limit_of(facts, primary, secondary, tier),
        evidence=evidence_for(facts),
        rules=profile.rules[:N_RULES],
        roofline_efficiency=min(1.0, profile.roofline_efficiency),
        techniques=_techniques(primary, secondary, limiter, kind, precision),
    )


def architecture_of(compute_capability: tuple[int, int]) -> str:
    """As compilers name it: (9, 0) is "sm_90"."""
    return f"sm_{compute_capability[0]}{compute_capability[1]}"


def _bottlenecks(busy: Scores, waiting: Scores, tier: Tier) -> tuple[Bottleneck, Bottleneck | None]:
    if tier is Tier.UNDERUTILIZED:
        primary = _largest(waiting)
        rest = [_best(waiting, SECOND_LATENCY, primary), _best(busy, SECOND_LATENCY, primary)]
    else:
        primary = _largest(busy)
        rest = [_best(busy, SECOND_THROUGHPUT, primary), _best(waiting, SECOND_LATENCY, primary)]
    return primary, next((found for found in rest if found is not None), None)


def _largest(scores: Scores) -> Bottleneck:
    """Of equals, the first."""
    return max(scores, key=lambda bottleneck: scores[bottleneck])


def _best(scores: Scores, at_least: float, primary: Bottleneck) -> Bottleneck | None:
    others = {b: score for b, score in scores.items() if b is not primary and score >= at_least}
    return _largest(others) if others else None


def _limiter(profile: Profile, primary: Bottleneck) -> str:
    """The stall that takes most of the time, else what keeps more warps from an SM."""
    if primary is Bottleneck.PARALLELISM:
        return "grid"
    if profile.stalls and profile.stalls[0].share >= NAMED_STALL:
        return profile.stalls[0].reason
    if profile.occupancy is not None and profile.occupancy < LOW_OCCUPANCY:
        return profile.occupancy_limiter
    return ""


def _techniques(
    primary: Bottleneck, secondary: Bottleneck | None, limiter: str, kind: KernelKind, precision: PrecisionClass
) -> tuple[str, ...]:
    return tuple(techniques_for(primary, secondary, limiter, kind, precision=precision)[:N_TECHNIQUES])
