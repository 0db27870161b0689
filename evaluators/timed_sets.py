"""What the timed launches work on: drawings that no program saw when it was checked, in the hand of the judge.

Every input set of a rotation holds a drawing of its own, up to `N_DRAWS` of them, so that no launch can be told from
another by what it is given; and the judge can have new ones at any time, and knows what the reference makes of each.
"""

from __future__ import annotations

import random
from typing import Any

from db.records import GateResult, Workload
from evaluators.gpu_session import Slot
from evaluators.input_sets import Drawn, InputSet, ReferenceSets

N_DRAWS = 8  # small inputs rotate over more sets than these; drawing one takes a quarter of a millisecond


class TimedSets:
    """The drawings that are in the timed input sets of one slot now. Not safe to use from two threads."""

    def __init__(
        self, sets: ReferenceSets, workload: Workload, slot: Slot, rng: random.Random, device: str = "cuda"
    ) -> None:
        self.workload = workload
        self._sets = sets
        self._slot = slot
        self._rng = rng
        self._device = device
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
        seeds = [self._rng.getrandbits(40) for _ in range(min(self._n_sets, N_DRAWS))]
        self._draws = [self._reference.draw_inputs(seed, self._device) for seed in seeds]
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
