"""What the timed launches work on: drawings that no program saw when it was checked, in the hand of the judge.

Every input set of a rotation holds a drawing of its own, up to `N_DRAWS` of them, so that no launch can be told from
another by what it is given; and the judge can have new ones at any time, and knows what the reference makes of each.
"""

from __future__ import annotations

import random
import time
from typing import Any

from db.records import GateResult, Workload
from evaluators.gpu_session import Slot
from evaluators.input_sets import Drawn, InputSet, ReferenceSets
from evaluators.problems.reference import Reference

N_DRAWS = 8  # small inputs rotate over more sets than these; drawing one takes a quarter of a millisecond
SLOW_S = 0.005  # for one drawing, or half of what may be spent on them at once
N_KEPT = 6  # drawings, where they are slow


class Draws:
    """Inputs of one workload that no check has used: drawn anew where that is quick, else a few in turn."""

    def __init__(self, reference: Reference, rng: random.Random, device: str, slow_s: float = SLOW_S) -> None:
        self._reference = reference
        self._rng = rng
        self._device = device
        self._slow_s = slow_s
        self._kept: list[list[Any]] = []
        self._n_taken = 0

    def take(self, n: int) -> list[list[Any]]:
        """Up to `n` drawings, at least one: fewer where that would take long, since the GPU waits meanwhile."""
        end, found = time.perf_counter() + 2 * self._slow_s, [self._take()]
        while len(found) < n and time.perf_counter() < end:
            found.append(self._take())
        return found

    def _take(self) -> list[Any]:
        if len(self._kept) == N_KEPT:
            self._n_taken += 1
            return self._kept[self._n_taken % N_KEPT]
        start = time.perf_counter()
        inputs = self._reference.draw_inputs(self._rng.getrandbits(40), self._device)
        if time.perf_counter() - start > self._slow_s:
            self._kept.append(inputs)
        return inputs


class TimedSets:
    """The drawings that are in the timed input sets of one slot now. Not safe to use from two threads."""

    def __init__(self, sets: ReferenceSets, workload: Workload, slot: Slot, source: Draws) -> None:
        self.workload = workload
        self._sets = sets
        self._slot = slot
        self._source = source
        self._reference = sets.references[workload.name]
        self._n_sets: int = slot.places[workload.name]["n_sets"]
        self._draws: list[list[Any]] = []

    @property
    def wanted(self) -> InputSet:
        """How a reason names what was timed."""
        return InputSet(self.workload, 0, "plain", True, False)

    def renew(self) -> None:
        """Draws inputs that nobody has seen, for all sets."""
        self._draws = []  # before new ones take memory
        self._draws = self._source.take(min(self._n_sets, N_DRAWS))
        self.write()

    def write(self) -> None:
        """Puts the same drawings into the same sets again."""
        self._slot.write_sets(self.workload, self._draws)

    def drawn(self, launch: int) -> Drawn:
        """What a launch was given, and what the reference makes of it."""
        inputs = self._of(launch)
        expected = self._reference.expected(inputs)
        first = next(s for s in self._sets.sets if s.workload == self.workload)
        return Drawn(
            inputs, expected, [None] * len(expected), [None] * len(expected), self._sets.drawn(first).tolerances
        )

    def check_inputs(self, launch: int) -> GateResult:
        """Whether the inputs of a launch are still what was written."""
        return self._slot.check_inputs(self.workload, self._of(launch), launch % self._n_sets)

    def _of(self, launch: int) -> list[Any]:
        return self._draws[launch % self._n_sets % len(self._draws)]
