"""What a strategy is: which parents are used when, and which operator gets the call."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from islands.bandit import Bandit, UniformBandit, gain_of
from islands.grid import AddStatus, Occupant
from islands.operators.base import Operator, Proposal
from islands.settings import IslandSettings
from islands.strategies.openings import STRIKES, Openings, program_ids


class Draw(NamedTuple):
    """A decision: this operator, on these parents."""

    operator: Operator
    parents: tuple[Occupant, ...]

    @property
    def arm(self) -> str:
        return self.operator.name

    @property
    def parent_ids(self) -> tuple[str, ...]:
        return program_ids(self.parents)


class Stock(NamedTuple):
    """What an island has to breed from."""

    elites: Sequence[Occupant]  # of the grid, fastest first; never empty when a strategy is asked
    founders: Sequence[Occupant]  # the seeds that were correct, in the order of their verdicts
    n_in_flight: int


class Trial(NamedTuple):
    """How a draw, or a seed (arm "seed", no parents), ended. `child` is None when the program cannot be a parent."""

    candidate_id: str
    arm: str
    parents: tuple[str, ...]  # program ids
    parent_us: float | None  # of the fastest parent; None where it is not known
    child: Occupant | None
    status: AddStatus
    detail: str = ""  # what was changed, as the operator said it

    @property
    def gain(self) -> float:
        """What the arm earned, in octaves, never negative."""
        return gain_of(self.parent_us, self.child.latency_us if self.child else None)


class Strategy(ABC):
    """Decides what to try. Told of everything that it decided, in any order; the same events and `rng`, the same draws.

    An island calls `start` once, then for every ask `begin_batch` and as many `draw` as it needs. For a draw it calls
    either `wasted` (no new program came of it, or none that the strategy `accepts`) or `asked`, and for what was asked,
    later, `told`. On resume the island repeats `asked` and `told` for what the archive holds.
    """

    name: ClassVar[str]

    def start(self, operators: Sequence[Operator], settings: IslandSettings) -> None:
        """Learns what there is to choose from.

        Raises:
            ValueError: two operators have the same name, so that nobody could tell whose a verdict is.
        """
        if len({operator.name for operator in operators}) < len(operators):
            raise ValueError(f"operators need different names, got {sorted(operator.name for operator in operators)}")
        self._operators = {operator.name: operator for operator in operators}
        self._bandit = self._make_bandit(settings)
        self._openings = Openings(operators)

    def begin_batch(self) -> None:  # noqa: B027 - most strategies do not care
        """The draws from here on are asked together: none of them can learn from another."""

    @abstractmethod
    def draw(self, stock: Stock, rng: random.Random) -> Draw | None:
        """The next decision. None when there is nothing to decide until verdicts come in, or nothing left."""

    def accepts(self, draw: Draw, proposal: Proposal, rng: random.Random) -> bool:  # noqa: ARG002 - for subclasses
        """Whether a new program is worth a judgement. What is declined may be proposed again."""
        return True

    def wasted(self, draw: Draw, *, applies: bool) -> None:
        """A draw came to nothing: the operator does not apply to these parents, or its program is known or declined."""
        self._openings.strike(draw.arm, draw.parent_ids, 1 if applies else STRIKES)

    def asked(self, candidate_id: str, arm: str, parents: tuple[str, ...]) -> None:  # noqa: ARG002 - for subclasses
        """A draw became a candidate."""
        self._openings.reopen(arm, parents)
        if arm in self._operators:
            self._bandit.asked(arm)

    def told(self, trial: Trial) -> None:
        """The candidate of a draw, or a seed, was judged."""
        if trial.arm in self._operators:
            self._bandit.told(trial.arm, trial.gain)

    def is_finished(self) -> bool:
        """Whether the strategy has run its course and will never draw again."""
        return False

    def _make_bandit(self, settings: IslandSettings) -> Bandit:  # noqa: ARG002
        return UniformBandit()

    def _draw_from(self, parent: Occupant, mates: Sequence[Occupant], rng: random.Random) -> Draw | None:
        """Lets the bandit choose an operator for a parent, and chance its mates. None when nothing is open."""
        choices = self._openings.of(parent, mates)
        if not choices:
            return None
        arm = self._bandit.choose(list(choices), rng)
        return Draw(self._operators[arm], rng.choice(choices[arm]))
