"""How much of a run language models may use up: one whose programs are all refused must not starve the search."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from db.records import Evaluation

GRACE, SHARE = 2, 1 / 8
"""Refused programs of models that nothing is said about, and what they may come to of all verdicts beyond."""

STANDSTILL_S = 5.0  # without any verdict: nobody else has anything to propose


class Allowance:
    """Counts what models wrote: a program that passes makes good for one that was refused."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_at = clock()
        self._n_told = 0
        self._balance = 0  # programs of models that were refused, less those that passed

    def told(self, evaluations: Iterable[Evaluation]) -> None:
        """Verdicts came in."""
        self._last_at = self._clock()
        for evaluation in evaluations:
            self._n_told += 1
            if evaluation.candidate.lineage.model:
                self._balance += -1 if evaluation.verdict.is_correct else 1

    @property
    def is_open(self) -> bool:
        """Whether models may be asked for more, as far as verdicts say."""
        return self._balance < GRACE + SHARE * self._n_told

    @property
    def is_needed(self) -> bool:
        """Whether the search stands still without them."""
        return self._clock() - self._last_at > STANDSTILL_S
