"""What one parent of a crossover is better at than the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from db.records import Verdict
from islands.prompts.figures import bytes_in_words

CLEARLY = 1.05  # a figure that is better by less is no strength
MEASURABLY = 1.01  # as far as latencies can be told apart


class _Contest(NamedTuple):
    """A figure of both, and how it is said of the one that has less, or more where more is better."""

    read: Callable[[Verdict], float | None]
    words: str
    say: Callable[[float], str]
    is_more_better: bool = False
    least: float = CLEARLY


def _of_profile(field: str) -> Callable[[Verdict], float | None]:
    return lambda verdict: getattr(verdict.profile, field) if verdict.profile else None


def _traffic(verdict: Verdict) -> float | None:
    profile = verdict.profile
    if profile is None or profile.dram_read_bytes is None or profile.dram_write_bytes is None:
        return None
    return profile.dram_read_bytes + profile.dram_write_bytes


def _n_launches(verdict: Verdict) -> float | None:
    return float(len(verdict.captures[0].launches)) if verdict.captures else None


_CONTESTS = (
    _Contest(
        lambda v: v.latency.device_us if v.latency else None, "faster", lambda us: f"{us:.2f} us", least=MEASURABLY
    ),
    _Contest(_traffic, "moves fewer bytes of DRAM", bytes_in_words),
    _Contest(_of_profile("spill_bytes"), "spills less per thread", bytes_in_words),
    _Contest(_of_profile("n_registers"), "needs fewer registers", lambda n: f"{n:.0f}"),
    _Contest(_of_profile("shared_bytes"), "needs less shared memory per program", bytes_in_words),
    _Contest(_n_launches, "launches fewer kernels", lambda n: f"{n:.0f}"),
    _Contest(_of_profile("memory_sol_pct"), "uses memory better", lambda n: f"{n:.0f}%", is_more_better=True),
    _Contest(_of_profile("compute_sol_pct"), "uses the SMs better", lambda n: f"{n:.0f}%", is_more_better=True),
    _Contest(_of_profile("occupancy"), "keeps more warps resident", lambda n: f"{100 * n:.0f}%", is_more_better=True),
    _Contest(lambda v: v.error_ratio, "is more exact (error ratio)", lambda n: f"{n:.1f}"),
)


def strengths_of(one: Verdict, other: Verdict) -> tuple[str, ...]:
    """What `one` is clearly better at than `other`, where both were read: "faster: 10.20 us against 12.00 us"."""
    return tuple(_strengths(one, other))


def _strengths(one: Verdict, other: Verdict) -> Iterator[str]:
    for contest in _CONTESTS:
        mine, theirs = contest.read(one), contest.read(other)
        if mine is None or theirs is None:
            continue
        less, more = (theirs, mine) if contest.is_more_better else (mine, theirs)
        if more > contest.least * less:
            yield f"{contest.words}: {contest.say(mine)} against {contest.say(theirs)}"
