"""What the papers print of many modules: counts, means, distributions. Pure functions over rows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from db.records import Record
from evaluators.decomposition.classify import GAIN, ModelOutcome
from evolve.models.rows import BenchRow

FAST_P = (1.0, 1.1, 1.2, 1.5, 2.0)  # KernelBench (Ouyang et al., 2025): correct, and faster than p times the baseline
EDGES = (1 / GAIN, GAIN, 1.1, 1.2, 1.5, 2.0, 3.0)  # of the distribution; each bucket holds its upper edge
NO_LEVEL = "none"
UNKNOWN = "unknown"


class Counted(Record):
    """How many modules, and which share of all."""

    n: int
    share: float


class Spread(Record):
    """How ratios are distributed. `share_above` and `share_below` are those above and below 1."""

    n: int
    mean: float
    geomean: float
    median: float
    smallest: float
    largest: float
    share_above: float
    share_below: float


class Bucket(Record):
    """Speed-ups above `low` up to and including `high`; None is no limit."""

    low: float | None
    high: float | None
    counted: Counted


class Group(Record):
    """Modules that have something in common."""

    n: int
    outcomes: dict[str, int]
    causes: dict[str, int]
    dominant: dict[str, int]
    distribution: tuple[Bucket, ...]  # of what is delivered
    geomean: float | None


class Against(Record):
    """What is delivered over one way of running the modules, where that was timed. A win is faster by more than 3%."""

    spread: Spread
    n_wins: int
    n_ties: int
    n_losses: int
    fast_p: dict[str, float]  # of the modules that were timed so


class Figures(Record):
    """Everything of some rows. Shares are of all of them; means leave out those without an outcome."""

    n: int
    n_errors: int
    outcomes: dict[str, Counted]
    causes: dict[str, Counted]
    valid: Counted  # a program of the module passed every gate but that of speed
    delivered: Spread | None  # what keeps its baseline counts as 1
    optimized: Spread | None
    programs: Spread | None  # the fastest correct program of each module, delivered or not
    roofline: Spread | None  # efficiency of what is delivered, in [0, 1], where it is known
    fast_p: dict[str, float]
    fast_p_curve: tuple[tuple[float, float], ...]
    distribution: tuple[Bucket, ...]
    dominant: dict[str, Group]
    levels: dict[str, Group]
    against: dict[str, Against]


def figures_of(rows: Sequence[BenchRow]) -> Figures:
    """The figures of rows of one precision class."""
    speedups = [row.speedup for row in rows if row.speedup is not None]
    outcomes = {str(o): [row for row in rows if row.outcome is o] for o in ModelOutcome}
    return Figures(
        n=len(rows),
        n_errors=sum(bool(row.error) for row in rows),
        outcomes={name: _counted(found, rows) for name, found in outcomes.items()},
        causes=_causes(rows),
        valid=_counted([row for row in rows if row.is_valid], rows),
        delivered=spread_of(speedups),
        optimized=spread_of([r.speedup for r in rows if r.speedup and r.outcome is ModelOutcome.OPTIMIZED]),
        programs=spread_of([r.program_speedup for r in rows if r.program_speedup is not None]),
        roofline=spread_of([r.roofline_efficiency for r in rows if r.roofline_efficiency]),
        fast_p=fast_p_of(speedups, len(rows)),
        fast_p_curve=fast_p_curve(speedups, len(rows)),
        distribution=distribution_of(speedups, len(rows)),
        dominant=_groups(rows, lambda row: str(row.dominant or UNKNOWN)),
        levels=dict(sorted(_groups(rows, lambda row: NO_LEVEL if row.level is None else str(row.level)).items())),
        against=_against(rows),
    )


def spread_of(ratios: Sequence[float]) -> Spread | None:
    """None where there are no ratios. They must be positive."""
    if not ratios:
        return None
    n = len(ratios)
    return Spread(
        n=n,
        mean=statistics.fmean(ratios),
        geomean=geomean(ratios),
        median=statistics.median(ratios),
        smallest=min(ratios),
        largest=max(ratios),
        share_above=sum(ratio > 1 for ratio in ratios) / n,
        share_below=sum(ratio < 1 for ratio in ratios) / n,
    )


def geomean(ratios: Sequence[float]) -> float:
    """The geometric mean of positive numbers."""
    return math.exp(statistics.fmean(map(math.log, ratios)))


def fast_p_of(speedups: Sequence[float], n: int) -> dict[str, float]:
    """For each p, the share of n modules that are correct and faster than p times the baseline."""
    return {f"{p:g}": sum(speedup > p for speedup in speedups) / (n or 1) for p in FAST_P}


def fast_p_curve(speedups: Sequence[float], n: int) -> tuple[tuple[float, float], ...]:
    """fast_p at 1 and at every speed-up above, where it falls: a staircase, to be read from the left."""
    steps = sorted({1.0, *(speedup for speedup in speedups if speedup > 1)})
    return tuple((p, sum(speedup > p for speedup in speedups) / (n or 1)) for p in steps)


def distribution_of(speedups: Sequence[float], n: int) -> tuple[Bucket, ...]:
    """How many of n modules lie in each bucket."""
    bounds = [None, *EDGES, None]
    buckets = []
    for low, high in pairwise(bounds):
        found = sum((low is None or s > low) and (high is None or s <= high) for s in speedups)
        buckets.append(Bucket(low=low, high=high, counted=Counted(n=found, share=found / (n or 1))))
    return tuple(buckets)


def _counted(found: Sequence[BenchRow], rows: Sequence[BenchRow]) -> Counted:
    return Counted(n=len(found), share=len(found) / (len(rows) or 1))


def _causes(rows: Sequence[BenchRow]) -> dict[str, Counted]:
    counts = _tally(str(row.cause) for row in rows if row.cause is not None)
    return {cause: Counted(n=n, share=n / len(rows)) for cause, n in counts.items()}


def _tally(names: Iterable[str]) -> dict[str, int]:
    """How often each, the most frequent first."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _groups(rows: Sequence[BenchRow], name_of: Callable[[BenchRow], str]) -> dict[str, Group]:
    return {name: _group([row for row in rows if name_of(row) == name]) for name in _tally(map(name_of, rows))}


def _group(rows: Sequence[BenchRow]) -> Group:
    speedups = [row.speedup for row in rows if row.speedup is not None]
    return Group(
        n=len(rows),
        outcomes=_tally(str(row.outcome) for row in rows if row.outcome is not None),
        causes=_tally(str(row.cause) for row in rows if row.cause is not None),
        dominant=_tally(str(row.dominant or UNKNOWN) for row in rows),
        distribution=distribution_of(speedups, len(rows)),
        geomean=geomean(speedups) if speedups else None,
    )


def _against(rows: Sequence[BenchRow]) -> dict[str, Against]:
    names = dict.fromkeys(name for row in rows for name in row.against)
    return {name: _against_one([row.against[name] for row in rows if name in row.against]) for name in names}


def _against_one(ratios: Sequence[float]) -> Against:
    spread = spread_of(ratios)
    assert spread is not None
    n_wins, n_losses = sum(r > GAIN for r in ratios), sum(r < 1 / GAIN for r in ratios)
    return Against(
        spread=spread,
        n_wins=n_wins,
        n_ties=len(ratios) - n_wins - n_losses,
        n_losses=n_losses,
        fast_p=fast_p_of(ratios, len(ratios)),
    )
