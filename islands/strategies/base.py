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

SEED = "seed"
"""The arm of programs that a search started from."""

STRIKES = 3
"""An operator whose draws came to nothing this often in a row is not asked again for these parents."""


class Draw(NamedTuple):
    """A decision: this operator, on these parents."""

    operator: Operator
    parents: tuple[Occupant, ...]

    @property
    def arm(self) -> str:
        return self.operator.name

    @property
    def parent_ids(self) -> tuple[str, ...]:
        return tuple(parent.program_id for parent in self.parents)


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

    An island calls `start` once, then `draw`; for every draw either `wasted` (no new program came of it, or none that
    the strategy `accepts`) or `asked`, and for what was asked, later, `told`. On resume the island repeats `asked` and
    `told` for what the archive holds.
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
        self._strikes: dict[tuple[str, tuple[str, ...]], int] = {}

    @abstractmethod
    def draw(self, stock: Stock, rng: random.Random) -> Draw | None:
        """The next decision. None when there is nothing to decide until verdicts come in, or nothing left."""

    def accepts(self, draw: Draw, proposal: Proposal, rng: random.Random) -> bool:  # noqa: ARG002 - for subclasses
        """Whether a new program is worth a judgement. What is declined may be proposed again."""
        return True

    def wasted(self, draw: Draw, *, applies: bool) -> None:
        """A draw came to nothing: the operator does not apply to these parents, or its program is known or declined."""
        key = (draw.arm, draw.parent_ids)
        self._strikes[key] = STRIKES if not applies else self._strikes.get(key, 0) + 1

    def asked(self, candidate_id: str, arm: str, parents: tuple[str, ...]) -> None:  # noqa: ARG002 - for subclasses
        """A draw became a candidate."""
        self._strikes.pop((arm, parents), None)
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

    def _open_draws(self, parent: Occupant, mates: Sequence[Occupant]) -> dict[str, list[tuple[Occupant, ...]]]:
        """By arm, the groups of parents led by `parent` for which the operator may still have something new."""
        found: dict[str, list[tuple[Occupant, ...]]] = {}
        for arm, operator in self._operators.items():
            groups = _groups(parent, mates, operator.n_parents)
            live = [group for group in groups if self._is_open(arm, group)]
            if live:
                found[arm] = live
        return found

    def _has_open_draws(self, parent: Occupant, mates: Sequence[Occupant]) -> bool:
        """Whether `_open_draws` would find any; stops at the first."""
        return any(
            self._is_open(arm, group)
            for arm, operator in self._operators.items()
            for group in _groups(parent, mates, operator.n_parents)
        )

    def _draw_from(self, parent: Occupant, mates: Sequence[Occupant], rng: random.Random) -> Draw | None:
        """Lets the bandit choose an operator for a parent, and chance its mates. None when nothing is open."""
        choices = self._open_draws(parent, mates)
        if not choices:
            return None
        arm = self._bandit.choose(list(choices), rng)
        return Draw(self._operators[arm], rng.choice(choices[arm]))

    def _is_open(self, arm: str, group: tuple[Occupant, ...]) -> bool:
        return self._strikes.get((arm, tuple(member.program_id for member in group)), 0) < STRIKES


def _groups(parent: Occupant, mates: Sequence[Occupant], n_parents: int) -> list[tuple[Occupant, ...]]:
    """Groups of `n_parents` different programs that `parent` leads: one for each run of consecutive mates."""
    others = [mate for mate in mates if mate.program_id != parent.program_id]
    n_mates = n_parents - 1
    return [(parent, *others[k : k + n_mates]) for k in range(len(others) - n_mates + 1)] if n_mates else [(parent,)]
