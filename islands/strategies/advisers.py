"""Advisers: who says which technique a parent gets, and which of several proposals is the best.

A bandit knows techniques alone. A knowledge base also knows what keeps the parent from being faster, what was done to
it before, and what came of this in earlier runs.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from db.moves import direction_of, move_of
from islands.bandit import AdaptiveBandit, Bandit, UniformBandit
from islands.grid import Occupant
from islands.knowledge import Attempt, KnowledgeBase, KnowledgeSummary, PriorKnowledge, Situation, cause_of
from islands.operators.base import Operator, Proposal, cost_of
from islands.settings import IslandSettings
from islands.strategies.base import Draw, Expectation, Trial

MOST_PROPOSALS = 2
"""Proposals that a draw may be chosen from: each costs as much as an edit does."""

Propose = Callable[[], Proposal | None]
IsNew = Callable[[Proposal], bool]


class Adviser(ABC):
    """Chooses among the operators that are open for a parent, and learns from what came of it."""

    @abstractmethod
    def choose(self, parent: Occupant, arms: Sequence[str], rng: random.Random) -> str:
        """One of the arms, of which there is at least one."""

    @abstractmethod
    def asked(self, arm: str) -> None:
        """A candidate of this operator is on its way to the judge."""

    @abstractmethod
    def told(self, trial: Trial) -> None:
        """It was judged."""

    def best_of(self, draw: Draw, propose: Propose, is_new: IsNew, rng: random.Random) -> Proposal | None:  # noqa: ARG002
        """One proposal for a draw."""
        return propose()

    def accepts(self, draw: Draw, proposal: Proposal) -> bool:  # noqa: ARG002
        """Whether a proposal may be made now."""
        return True

    def expects(self, draw: Draw) -> Expectation:  # noqa: ARG002
        """What should come of a draw."""
        return Expectation()

    @property
    def knowledge(self) -> KnowledgeBase | None:
        """Where its advice comes from; None when it is no knowledge base."""
        return None

    def summary(self) -> KnowledgeSummary | None:
        """What it knows, in counts; None when it is no knowledge base."""
        return None


class BanditAdviser(Adviser):
    """Asks a bandit, which takes all parents for alike."""

    def __init__(self, bandit: Bandit) -> None:
        self._bandit = bandit

    def choose(self, parent: Occupant, arms: Sequence[str], rng: random.Random) -> str:  # noqa: ARG002
        return self._bandit.choose(arms, rng)

    def asked(self, arm: str) -> None:
        self._bandit.asked(arm)

    def told(self, trial: Trial) -> None:
        self._bandit.told(trial.arm, trial.gain)


class KnowledgeAdviser(Adviser):
    """Asks the knowledge base, which is told the situation of the first parent."""

    def __init__(self, knowledge: KnowledgeBase) -> None:
        self._knowledge = knowledge

    def choose(self, parent: Occupant, arms: Sequence[str], rng: random.Random) -> str:
        return self._knowledge.choose(situation_of(parent), arms, rng)

    def asked(self, arm: str) -> None:
        self._knowledge.asked(arm)

    def told(self, trial: Trial) -> None:
        """A trial whose parent nobody knows says nothing, but it is under way no more."""
        if trial.before is None:
            self._knowledge.lost(trial.arm)
            return
        octaves = trial.octaves
        situation = trial.before.situation._replace(state=trial.expected.state)
        cause = cause_of(trial.before, trial.after, trial.expected.octaves, octaves)
        self._knowledge.told(Attempt(trial.arm, situation, octaves, trial.detail, trial.expected.octaves, cause))

    def best_of(self, draw: Draw, propose: Propose, is_new: IsNew, rng: random.Random) -> Proposal | None:
        """The first new proposal that promises what the technique usually gains, else the better of two."""
        situation = situation_of(draw.parents[0])
        usual = self._knowledge.predict(situation, draw.arm) if self._knowledge.knows_moves(situation, draw.arm) else 0
        best, best_worth = None, -math.inf
        for _ in range(MOST_PROPOSALS):
            proposal = propose()
            if proposal is None:
                break
            worth = self._worth(situation, proposal, rng) if is_new(proposal) else -1.0
            if worth > best_worth:
                best, best_worth = proposal, worth
            if worth >= usual:
                break
        return best

    def accepts(self, draw: Draw, proposal: Proposal) -> bool:
        return not self._knowledge.excludes(direction_of(draw.arm, proposal.detail))

    def expects(self, draw: Draw) -> Expectation:
        situation = situation_of(draw.parents[0])
        return Expectation(situation.state, self._knowledge.expect(situation, draw.arm))

    @property
    def knowledge(self) -> KnowledgeBase | None:
        return self._knowledge

    def summary(self) -> KnowledgeSummary | None:
        return self._knowledge.summary()

    def _worth(self, situation: Situation, proposal: Proposal, rng: random.Random) -> float:
        move = move_of(proposal.technique, proposal.detail)
        return self._knowledge.weigh(situation, proposal.technique, move, rng)


def situation_of(parent: Occupant) -> Situation:
    return Situation.of(parent.verdict, parent.candidate.lineage.technique)


def make_adviser(
    operators: Mapping[str, Operator], settings: IslandSettings, prior: PriorKnowledge | None = None
) -> Adviser:
    """The adviser that the settings name."""
    if settings.operator_choice == "knowledge":
        return KnowledgeAdviser(KnowledgeBase(operators, settings, prior))
    if settings.operator_choice == "random":
        return BanditAdviser(UniformBandit())
    costs = {name: cost_of(operator) for name, operator in operators.items()}
    priors = {name: operator.prior for name, operator in operators.items()}
    return BanditAdviser(AdaptiveBandit(costs, priors=priors, exploration=settings.bandit_exploration))
