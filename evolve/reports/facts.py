"""What a report says about a run, worked out from its records: numbers and names, no markup."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from db.measures import Cell, MeasureSpace, Tier
from db.opinions import ProgramOpinion
from db.records import Evaluation, Gate, Latency, Outcome, Problem, Run
from evolve.reports.counted import counters_line
from evolve.reports.limits import CeilingPoint, Limit, ceiling_points, limits_of

CONFIRM = "confirm"  # the operator under which `evolve.search` records that a winner was judged a second time
IMPROVES = (
    1.01  # a technique did where its program is so many times as fast as its parent, as db.knowledge counts it too
)


@dataclass(frozen=True)
class Point:
    """A correct candidate in the order of its verdict. `seconds` since the start of the run."""

    n: int
    seconds: float
    speedup: float
    island: int
    technique: str


@dataclass(frozen=True)
class GateBar:
    """What a gate was asked and how it answered."""

    gate: Gate
    asked: int
    passed: int

    @property
    def refused(self) -> int:
        return self.asked - self.passed


@dataclass(frozen=True)
class Funnel:
    """Candidates on their way through the gates. Duplicates took an earlier verdict and met no gate."""

    proposed: int
    duplicates: int
    correct: int
    winning: int  # may replace the baseline
    gates: tuple[GateBar, ...]


@dataclass(frozen=True)
class TechniqueRow:
    """How a technique did: proposals, those that repeated earlier work, and what came of the rest."""

    name: str
    operator: str
    tried: int
    duplicates: int
    passed: int
    improved: int  # faster than the fastest of its parents by 1%, beyond both intervals
    best_gain: float | None  # latency of the fastest parent over its own; None when nothing passed


@dataclass(frozen=True)
class LineageStep:
    """One ancestor of the best program. `change` is the latency of the step before over its own."""

    program_id: str
    operator: str
    technique: str
    detail: str
    island: int
    n: int
    latency_us: float
    speedup: float
    change: float | None
    other_parents: tuple[str, ...]
    seeded_from: str
    source: str
    limit: Limit | None


@dataclass(frozen=True)
class CellFact:
    """The fastest program of a cell, and how many programs fell into it."""

    cell: Cell
    latency: Latency
    program_id: str
    technique: str
    n_programs: int


@dataclass(frozen=True)
class FailureRow:
    """Refusals for one reason, numbers in it left out; `example` is one in full."""

    gate: str
    reason: str
    example: str
    n: int


@dataclass(frozen=True)
class ReportFacts:
    """Everything a report shows."""

    problem: Problem
    run: Run
    n_evaluations: int
    n_islands: int
    best: Evaluation | None  # the fastest that may replace the baseline, else the fastest correct one
    is_baseline_kept: bool
    is_confirmed: bool  # the best was judged a second time, and its figures are of that judgement
    points: tuple[Point, ...]
    funnel: Funnel
    techniques: tuple[TechniqueRow, ...]
    lineage: tuple[LineageStep, ...]
    ceilings: tuple[CeilingPoint, ...]
    cells: tuple[CellFact, ...]
    failures: tuple[FailureRow, ...]
    n_other_precision: int  # correct, but in the other precision class: neither best nor in the grid
    counters: str = ""  # how many programs have hardware counters, and why not more
    opinion: ProgramOpinion | None = None  # of a judge model, on the best; no gate asked for it

    @property
    def latency(self) -> Latency | None:
        return self.best.verdict.latency if self.best else None


def gather(problem: Problem, run: Run, evaluations: Sequence[Evaluation]) -> ReportFacts:
    """The facts of a run; `evaluations` in the order in which they were inserted."""
    own = [e for e in evaluations if e.verdict.is_correct and e.verdict.precision is run.precision]
    confirmed = best_of(e for e in own if is_confirmation(e))
    evaluations = [e for e in evaluations if not is_confirmation(e)]
    own = [e for e in own if not is_confirmation(e)]
    best = confirmed or best_of(own)
    chain = ancestors_of(best, evaluations) if best else []
    return ReportFacts(
        problem=problem,
        run=run,
        n_evaluations=len(evaluations),
        n_islands=len({e.candidate.island for e in evaluations}),
        is_confirmed=confirmed is not None,
        best=best,
        is_baseline_kept=best is None or not best.verdict.replaces_baseline,
        points=tuple(_points(evaluations, run)),
        funnel=funnel_of(evaluations),
        techniques=tuple(technique_rows(evaluations)),
        lineage=tuple(lineage_of(chain)),
        ceilings=tuple(ceiling_points(own, [e for _, e in chain if not is_confirmation(e)])),
        cells=tuple(cells_of(own)),
        failures=tuple(failure_rows(evaluations)),
        n_other_precision=sum(e.verdict.is_correct for e in evaluations) - len(own),
        counters=counters_line(own),
    )


def is_confirmation(evaluation: Evaluation) -> bool:
    """Whether this is the second judgement of a winner and not a candidate of its own."""
    return evaluation.candidate.lineage.operator == CONFIRM


def best_of(correct: Iterable[Evaluation]) -> Evaluation | None:
    """The fastest that may replace the baseline; where none may, the fastest correct one. Originals before copies."""
    return min(
        correct,
        key=lambda e: (not e.verdict.replaces_baseline, _latency(e).device_us, bool(e.verdict.duplicate_of)),
        default=None,
    )


def _latency(evaluation: Evaluation) -> Latency:
    latency = evaluation.verdict.latency
    if latency is None:
        raise ValueError(f"{evaluation.candidate.candidate_id} has no latency")
    return latency


def technique_of(evaluation: Evaluation) -> str:
    """The technique of a candidate, or its operator where it names none."""
    lineage = evaluation.candidate.lineage
    return lineage.technique or lineage.operator


def _points(evaluations: Sequence[Evaluation], run: Run) -> Iterable[Point]:
    for n, e in enumerate(evaluations, start=1):
        if e.verdict.latency is None or e.verdict.precision is not run.precision:
            continue
        since_start = max(0.0, e.created_at - run.started_at)
        yield Point(n, since_start, e.verdict.latency.speedup, e.candidate.island, technique_of(e))


def running_best(points: Iterable[Point]) -> list[Point]:
    """Those points that were faster than all before them."""
    best: list[Point] = []
    for point in points:
        if not best or point.speedup > best[-1].speedup:
            best.append(point)
    return best


def funnel_of(evaluations: Sequence[Evaluation]) -> Funnel:
    """How many candidates each gate was asked about and let through."""
    fresh = [e.verdict for e in evaluations if not e.verdict.duplicate_of]
    bars = []
    for gate in Gate:
        answers = [g.passed for v in fresh for g in v.gates if g.gate is gate]
        bars.append(GateBar(gate, len(answers), sum(answers)))
    return Funnel(
        proposed=len(evaluations),
        duplicates=len(evaluations) - len(fresh),
        correct=sum(v.is_correct for v in fresh),
        winning=sum(v.replaces_baseline for v in fresh),
        gates=tuple(bars),
    )


@dataclass
class _Tally:
    operator: str = ""
    tried: int = 0
    duplicates: int = 0
    passed: int = 0
    improved: int = 0
    gains: list[float] = field(default_factory=list)


def technique_rows(evaluations: Sequence[Evaluation]) -> list[TechniqueRow]:
    """One row a technique, the most fruitful first. Seeds are no technique."""
    latency_of = {e.candidate.program_id: e.verdict.latency for e in evaluations if e.verdict.latency}
    tallies: dict[str, _Tally] = defaultdict(_Tally)
    for e in evaluations:
        if e.candidate.lineage.operator != "seed":
            parents = [latency_of[p] for p in e.candidate.lineage.parents if p in latency_of]
            _count(tallies[technique_of(e)], e, parents)
    rows = [
        TechniqueRow(name, t.operator, t.tried, t.duplicates, t.passed, t.improved, max(t.gains, default=None))
        for name, t in tallies.items()
    ]
    return sorted(rows, key=lambda r: (-r.improved, -(r.best_gain or 0.0), r.name))


def _count(tally: _Tally, evaluation: Evaluation, parents: Sequence[Latency]) -> None:
    tally.operator = evaluation.candidate.lineage.operator
    tally.tried += 1
    if evaluation.verdict.duplicate_of:
        tally.duplicates += 1
        return
    latency = evaluation.verdict.latency
    if latency is None:
        return
    tally.passed += 1
    if parents:
        gain = min(p.device_us for p in parents) / latency.device_us
        tally.gains.append(gain)
        tally.improved += gain >= IMPROVES and latency.high_us < min(p.low_us for p in parents)


def ancestors_of(best: Evaluation, evaluations: Sequence[Evaluation]) -> list[tuple[int, Evaluation]]:
    """The ancestors of `best` along its first parents, oldest first, itself last, then its second judgement if any.

    Each with its number in the order of verdicts.
    """
    first: dict[str, tuple[int, Evaluation]] = {}
    for n, e in enumerate(evaluations, start=1):
        if e.verdict.latency:
            first.setdefault(e.candidate.program_id, (n, e))
    chain: list[tuple[int, Evaluation]] = []
    seen: set[str] = set()
    program_id: str | None = best.candidate.program_id
    while program_id in first and program_id not in seen:
        seen.add(program_id)
        chain.append(first[program_id])
        program_id = next(iter(chain[-1][1].candidate.lineage.parents), None)
    chain.reverse()
    if is_confirmation(best):
        chain.append((len(evaluations), best))
    return chain


def lineage_of(chain: Sequence[tuple[int, Evaluation]]) -> list[LineageStep]:
    """What each step of a lineage changed, and what limited it."""
    changes: list[float | None] = [None] if chain else []
    changes += [_latency(a).device_us / _latency(b).device_us for (_, a), (_, b) in pairwise(chain)]
    limits = limits_of([e for _, e in chain])
    return [_step(n, e, change, limit) for (n, e), change, limit in zip(chain, changes, limits, strict=True)]


def _step(n: int, evaluation: Evaluation, change: float | None, limit: Limit | None) -> LineageStep:
    candidate, latency = evaluation.candidate, _latency(evaluation)
    return LineageStep(
        program_id=candidate.program_id,
        operator=candidate.lineage.operator,
        technique=technique_of(evaluation),
        detail=candidate.lineage.detail,
        island=candidate.island,
        n=n,
        latency_us=latency.device_us,
        speedup=latency.speedup,
        change=change,
        other_parents=candidate.lineage.parents[1:],
        seeded_from=candidate.lineage.seeded_from,
        source=candidate.source,
        limit=limit,
    )


def cells_of(correct: Sequence[Evaluation], space: MeasureSpace | None = None) -> list[CellFact]:
    """The grid: one fact for every cell that holds a program."""
    space = space or MeasureSpace()
    by_cell: dict[Cell, list[Evaluation]] = defaultdict(list)
    for e in correct:
        tier = Tier(e.verdict.tier) if e.verdict.tier else Tier.UNDERUTILIZED
        by_cell[space.cell_of(tier, _latency(e).device_us)].append(e)
    return [_cell_fact(cell, members) for cell, members in sorted(by_cell.items())]


def _cell_fact(cell: Cell, members: Sequence[Evaluation]) -> CellFact:
    elite = min(members, key=lambda e: _latency(e).device_us)
    n_programs = len({e.candidate.program_id for e in members})
    return CellFact(cell, _latency(elite), elite.candidate.program_id, technique_of(elite), n_programs)


_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def failure_rows(evaluations: Sequence[Evaluation]) -> list[FailureRow]:
    """Why candidates were refused, the most frequent reason first. Speed refusals are no failures."""
    examples: dict[tuple[str, str], list[str]] = defaultdict(list)
    for e in evaluations:
        if e.verdict.outcome is Outcome.CORRECT or e.verdict.duplicate_of:
            continue
        gate = next((str(g.gate) for g in e.verdict.gates if not g.passed), str(e.verdict.outcome))
        reason = e.verdict.reason or "the interpreter cannot run it"
        examples[gate, _NUMBER.sub("#", reason.splitlines()[0])].append(reason)
    rows = [FailureRow(gate, reason, texts[0], len(texts)) for (gate, reason), texts in examples.items()]
    return sorted(rows, key=lambda row: (-row.n, row.gate, row.reason))
