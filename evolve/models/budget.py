"""How much each search may spend. What one leaves over goes to those after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from evaluators.decomposition.records import PartProblem
from evolve.budget import AS_MANY_AS_FIT
from evolve.config import LanguageSettings

LEAST = 10  # verdicts: with fewer, a search has hardly tried a technique
AT_FLOOR = 0.1  # of its time a part may win back though it is at its floor: that is a rough figure
WHOLE_SHARE = 0.2  # of the budget, for the module itself


class Allotment(NamedTuple):
    """Verdicts and, where it is limited, seconds."""

    evaluations: int
    time_s: float | None = None

    @property
    def is_time_alone(self) -> bool:
        return self.evaluations >= AS_MANY_AS_FIT and self.time_s is not None

    def share_of(self, whole: Allotment) -> float:
        """The fraction of another allotment that this is."""
        if self.is_time_alone and self.time_s is not None and whole.time_s is not None:
            return self.time_s / whole.time_s
        return self.evaluations / whole.evaluations

    def less(self, n_judged: int, elapsed_s: float) -> Allotment:
        """What is left after a search."""
        time_s = None if self.time_s is None else max(0.0, self.time_s - elapsed_s)
        return Allotment(self.evaluations if self.is_time_alone else max(0, self.evaluations - n_judged), time_s)

    @property
    def is_enough(self) -> bool:
        return self.evaluations >= LEAST and (self.time_s is None or self.time_s > 0)


def allotted(left: Allotment, shares: Sequence[float]) -> Allotment:
    """What the first of the searches that are still to come gets: its share of what they may gain, `LEAST` at least."""
    fraction = shares[0] / (sum(shares) or 1.0)
    time_s = None if left.time_s is None else left.time_s * fraction
    if left.is_time_alone:
        return Allotment(left.evaluations, time_s)
    return Allotment(min(left.evaluations, max(LEAST, round(left.evaluations * fraction))), time_s)


def expected_gain(part: PartProblem) -> float:
    """The part of the model's device time that a search may win back: what its kernels take above the time that memory
    needs for its inputs and outputs. All of it where that is not known."""
    above = 1.0 if part.efficiency is None else max(AT_FLOOR, 1 - part.efficiency)
    return part.share * above


def with_share(settings: LanguageSettings, fraction: float) -> LanguageSettings:
    """The limits on language models for one search of several: a budget is that of all together."""
    scaled = {
        name: None if (limit := getattr(settings, name)) is None else limit * fraction
        for name in ("budget_usd", "budget_s")
    }
    scaled |= {
        name: None if (limit := getattr(settings, name)) is None else int(limit * fraction)
        for name in ("budget_tokens", "budget_calls")
    }
    return settings.model_copy(update=scaled)
