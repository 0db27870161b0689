"""What a strategy is: which parents are used when, and which operator gets the call."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

from islands.bandit import Bandit, UniformBandit, gain_of
from islands.grid import AddStatus, Occupant
from islands.knowledge import KnowledgeBase, KnowledgeSummary, PriorKnowledge, Standing
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


class Expectation(NamedTuple):
    """What a strategy knew when it chose: the key of the first parent's state, and the octaves that it expected."""

    state: str = ""
    octaves: float | None = None


class Trial(NamedTuple):
    """How a draw, or a seed (arm "seed", no parents), ended. `child` is None when the program cannot be a parent."""

    candidate_id: str
    arm: str
    parents: tuple[str, ...]  # program ids
    parent_us: float | None  # of the fastest parent; None where it is not known
    child: Occupant | None
    status: AddStatus
    detail: str = ""  # what was changed, as the operator said it
    expected: Expectation = Expectation()
    before: Standing | None = None  # the first parent; None where it is not known
    after: Standing = Standing()

    @property
    def octaves(self) -> float | None:
        """What the arm won or lost; None for a program that cannot be a parent, and where the parent is not known."""
        if self.child is None or self.parent_us is None:
            return None
        return math.log2(self.parent_us / self.child.latency_us)

    @property
    def gain(self) -> float:
        """What the arm earned, in octaves, never negative."""
        return gain_of(self.parent_us, self.child.latency_us if self.child else None)


class Strategy(ABC):
    """Decides what to try. Told of everything that it decided, in any order; the same events and `rng`, the same draws.

    An island calls `start` once, then for every ask `begin_batch` and as many `draw` as it needs, and lets it `propose`
    a program for each. For a draw it calls either `wasted` (no new program came of it, or none that the strategy
    `accepts`) or `asked`, and for what was asked, later, `told`. On resume the island repeats `asked` and `told` for
    what the archive holds.
    """

    name: ClassVar[str]

    def start(
        self, operators: Sequence[Operator], settings: IslandSettings, prior: PriorKnowledge | None = None
    ) -> None:
        """Learns what there is to choose from, and what earlier runs knew of it.

        Raises:
            ValueError: two operators have the same name, so that nobody could tell whose a verdict is.
        """
        if len({operator.name for operator in operators}) < len(operators):
            raise ValueError(f"operators need different names, got {sorted(operator.name for operator in operators)}")
        self._operators = {operator.name: operator for operator in operators}
        self._prior = prior
        self._bandit = self._make_bandit(settings)
        self._openings = Openings(operators)

    def begin_batch(self) -> None:  # noqa: B027 - most strategies do not care
        """The draws from here on are asked together: none of them can learn from another."""

    @abstractmethod
    def draw(self, stock: Stock, rng: random.Random) -> Draw | None:
        """The next decision. None when there is nothing to decide until verdicts come in, or nothing left."""

    def propose(
        self,
        draw: Draw,
        is_new: Callable[[Proposal], bool],  # noqa: ARG002 - for subclasses
        rng: random.Random,
    ) -> Proposal | None:
        """The program of a draw, new or not; None when the operator does not apply to these parents."""
        return draw.operator.propose([parent.as_parent() for parent in draw.parents], rng)

    def expects(self, draw: Draw) -> Expectation:  # noqa: ARG002 - for subclasses
        """What should come of a draw."""
        return Expectation()

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

    @property
    def knowledge(self) -> KnowledgeBase | None:
        """What it knows of techniques; None when it knows nothing."""
        return None

    def summary(self) -> KnowledgeSummary | None:
        """What it knows, in counts; None when it knows nothing."""
        return None

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
        arm = self._choose(parent, list(choices), rng)
        return Draw(self._operators[arm], rng.choice(choices[arm]))

    def _choose(self, parent: Occupant, arms: Sequence[str], rng: random.Random) -> str:  # noqa: ARG002
        """An operator for a parent, of those that are open."""
        return self._bandit.choose(arms, rng)
