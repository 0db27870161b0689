"""Tallies: weighted counts of attempts and what they gained, and the belief that follows from them.

What an attempt gains is modelled as a chance to improve at all times what an improvement is worth. The chance has a
Beta posterior, the worth a mean. Tallies of wider groups of states are the prior of narrower ones, as so many imagined
attempts: where little is known of a state, its kind decides, and where much is known, the state itself.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from db.knowledge import IMPROVED_OCTAVES, KEPT_OCTAVES, MOST_OCTAVES

WORTH_OCTAVES = 0.2
"""What an improvement is worth before anything is known: 13% of latency."""

PSEUDO_WINS = 2.0
"""Imagined improvements, likewise, for what an improvement is worth."""

LEAST_CHANCE, MOST_CHANCE = 0.01, 0.9
"""What the chance of an operator may be before anything is known."""


class Counts(NamedTuple):
    """Attempts, how many kept their parent's speed, how many improved on it, and by how many octaves in all."""

    tried: float
    kept: float
    improved: float
    gained: float


def counts_of(octaves: float | None) -> Counts:
    """Those of one attempt; it failed where there are no octaves."""
    if octaves is None:
        return Counts(1.0, 0.0, 0.0, 0.0)
    improved = octaves >= IMPROVED_OCTAVES
    return Counts(1.0, octaves >= KEPT_OCTAVES, improved, min(octaves, MOST_OCTAVES) if improved else 0.0)


class Tally:
    """Weighted counts."""

    __slots__ = ("gained", "improved", "kept", "tried")

    def __init__(self) -> None:
        self.tried = self.kept = self.improved = self.gained = 0.0

    def add(self, counts: Counts, fading: float = 1.0) -> None:
        """Adds attempts; what was counted before keeps a share `fading` of its weight."""
        if fading < 1.0:
            self._scale(fading)
        self.tried += counts.tried
        self.kept += counts.kept
        self.improved += counts.improved
        self.gained += counts.gained

    def cap(self, most: float) -> None:
        """Counts for at most so many attempts: what was learnt elsewhere must not outvote what is seen here."""
        if self.tried > most:
            self._scale(most / self.tried)

    def _scale(self, factor: float) -> None:
        self.tried *= factor
        self.kept *= factor
        self.improved *= factor
        self.gained *= factor


class Belief(NamedTuple):
    """What an attempt should gain: a Beta posterior of the chance to improve, and what an improvement is worth."""

    wins: float
    losses: float
    worth: float  # octaves

    @classmethod
    def prior(cls, octaves: float, tries: float) -> Belief:
        """That of an operator: octaves that a try should gain, held as firmly as so many tries."""
        chance = min(max(octaves / WORTH_OCTAVES, LEAST_CHANCE), MOST_CHANCE)
        return cls(tries * chance, tries * (1 - chance), octaves / chance)

    @property
    def chance(self) -> float:
        return self.wins / (self.wins + self.losses)

    @property
    def mean(self) -> float:
        """Octaves."""
        return self.chance * self.worth

    def likelier(self, factor: float) -> Belief:
        """This belief with another chance to improve."""
        total = self.wins + self.losses
        chance = min(factor * self.chance, MOST_CHANCE)
        return self._replace(wins=total * chance, losses=total * (1 - chance))

    def narrowed(self, before: Tally | None, here: Tally | None, tries: float) -> Belief:
        """This belief, held as firmly as so many tries, as the prior of what was counted in a narrower group."""
        chance = self.chance
        wins, losses, worth, n_worth = tries * chance, tries * (1 - chance), self.worth * PSEUDO_WINS, PSEUDO_WINS
        for tally in (before, here):
            if tally is not None:
                wins += tally.improved
                losses += tally.tried - tally.improved
                worth += tally.gained
                n_worth += tally.improved
        return Belief(wins, losses, worth / n_worth)

    def sample(self, rng: random.Random, n_pending: int = 0) -> float:
        """A draw of the mean gain, in octaves; what is under way counts as tries that gained nothing yet."""
        return rng.betavariate(self.wins, self.losses + n_pending) * self.worth
