"""Who gets the next call: bandits that share the calls among techniques.

An arm is a technique. What it earns is its *gain*, the octaves by which a program beats its faster parent:
log2(parent latency / program latency), and nothing when the program failed or was slower.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PRIOR = 0.03
"""Octaves that a call of an arm nobody knows anything about is taken to earn: 2% of latency."""

MAX_GAIN_OCTAVES = 2.0
"""One lucky rewrite that is 40 times faster must not silence every other technique."""


def gain_of(parent_us: float | None, child_us: float | None) -> float:
    """Octaves won over the parent, in [0, 2]. 0 without a parent, for a failed program and for a slower one."""
    if parent_us is None or child_us is None:
        return 0.0
    return min(max(math.log2(parent_us / child_us), 0.0), MAX_GAIN_OCTAVES)


class Bandit(ABC):
    """Chooses among arms and learns from what they earned. Verdicts may return late and in any order."""

    @abstractmethod
    def choose(self, allowed: Sequence[str], rng: random.Random) -> str:
        """One of the allowed arms, of which there is at least one."""

    def asked(self, arm: str) -> None:  # noqa: B027 - a bandit that learns nothing is a bandit
        """A candidate of this arm is on its way to the judge."""

    def told(self, arm: str, gain: float) -> None:  # noqa: B027
        """The verdict for a candidate of this arm came back."""


class UniformBandit(Bandit):
    """Learns nothing: every allowed arm is equally likely. For the baselines."""

    def choose(self, allowed: Sequence[str], rng: random.Random) -> str:
        return rng.choice(allowed)


@dataclass(slots=True)
class _Arm:
    cost: float
    prior: float
    weight: float = 0.0  # tries, older ones count for less
    earned: float = 0.0  # octaves, older ones count for less
    n_pending: int = 0


class AdaptiveBandit(Bandit):
    """Probability matching: an arm is called in proportion to its mean gain per cost, above a floor of exploration.

    An arm starts with one imagined try that earned its prior, so what usually pays is tried early; a call under way
    counts as a try that earned nothing yet, so one batch spreads over the arms instead of repeating the best.
    """

    def __init__(
        self,
        costs: Mapping[str, float],
        *,
        priors: Mapping[str, float] | None = None,
        exploration: float = 0.15,
        discount: float = 0.95,
    ) -> None:
        """
        Args:
            costs: of a call of each arm.
            priors: octaves that a call is expected to earn before anything is known; `PRIOR` where none is given.
        """
        self._arms = {name: _Arm(cost, (priors or {}).get(name, PRIOR)) for name, cost in costs.items()}
        self._exploration = exploration
        self._discount = discount

    def choose(self, allowed: Sequence[str], rng: random.Random) -> str:
        shares = self.shares(allowed)
        return rng.choices(list(shares), weights=list(shares.values()))[0]

    def asked(self, arm: str) -> None:
        self._arms[arm].n_pending += 1

    def told(self, arm: str, gain: float) -> None:
        for other in self._arms.values():
            other.weight *= self._discount
            other.earned *= self._discount
        known = self._arms[arm]
        known.n_pending = max(0, known.n_pending - 1)
        known.weight += 1
        known.earned += gain

    def shares(self, allowed: Sequence[str]) -> dict[str, float]:
        """The probability of each allowed arm; they sum to 1."""
        values = {name: self._value(self._arms[name]) for name in allowed}
        total = sum(values.values())
        floor = self._exploration / len(values)
        return {name: floor + (1 - self._exploration) * value / total for name, value in values.items()}

    def _value(self, arm: _Arm) -> float:
        return (arm.prior + arm.earned) / (1 + arm.weight + arm.n_pending) / arm.cost


class UcbBandit(Bandit):
    """UCB1: the arm with the largest mean gain plus c * sqrt(ln N / n); untried arms first, in random order.

    Auer, Cesa-Bianchi and Fischer, Finite-time Analysis of the Multiarmed Bandit Problem, 2002. Gains are cut at one
    octave, because the bound is for rewards in [0, 1].
    """

    def __init__(self, c: float = 1.4) -> None:
        self._c = c
        self._n: dict[str, int] = {}
        self._earned: dict[str, float] = {}

    def choose(self, allowed: Sequence[str], rng: random.Random) -> str:
        untried = [arm for arm in allowed if not self._n.get(arm)]
        if untried:
            return rng.choice(untried)
        return max(allowed, key=lambda arm: (self._bound(arm), arm))

    def asked(self, arm: str) -> None:
        self._n[arm] = self._n.get(arm, 0) + 1

    def told(self, arm: str, gain: float) -> None:
        self._earned[arm] = self._earned.get(arm, 0.0) + min(gain, 1.0)

    def _bound(self, arm: str) -> float:
        n = self._n[arm]
        return self._earned.get(arm, 0.0) / n + self._c * math.sqrt(math.log(sum(self._n.values())) / n)
