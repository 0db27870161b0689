"""AVOID: techniques that hardly ever work on a kind of kernel."""

from __future__ import annotations

from db.knowledge import TechniqueEvidence
from islands.knowledge.situation import Attempt, kernel_kind_of
from islands.knowledge.tally import Counts, Tally, counts_of

LEAST_TRIES = 3.0
LEAST_SUCCESS = 0.3


class AvoidList:
    """Counts, for each kind of kernel, how often a technique gave a correct program that was not slower."""

    def __init__(self, most_earlier_tries: float) -> None:
        self._most_earlier_tries = most_earlier_tries
        self._tallies: dict[tuple[str, str], Tally] = {}

    def start(self, earlier: list[tuple[TechniqueEvidence, Counts]]) -> None:
        """Takes in what earlier runs counted, weighed."""
        for evidence, counts in earlier:
            self._add(evidence.technique, evidence.state, counts)
        for tally in self._tallies.values():
            tally.cap(self._most_earlier_tries)

    def told(self, attempt: Attempt) -> None:
        self._add(attempt.technique, attempt.situation.state, counts_of(attempt.octaves))

    def flags(self, technique: str, state: str) -> bool:
        """Whether it failed too often on kernels of this kind."""
        tally = self._tallies.get((kernel_kind_of(state), technique))
        return tally is not None and _is_hopeless(tally)

    @property
    def flagged(self) -> list[tuple[str, str]]:
        """Kinds of kernel with techniques."""
        return sorted(key for key, tally in self._tallies.items() if _is_hopeless(tally))

    def _add(self, technique: str, state: str, counts: Counts) -> None:
        self._tallies.setdefault((kernel_kind_of(state), technique), Tally()).add(counts)


def _is_hopeless(tally: Tally) -> bool:
    return tally.tried >= LEAST_TRIES and tally.kept < LEAST_SUCCESS * tally.tried - 1e-9  # weights are not whole
