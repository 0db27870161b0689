"""What an operator is: parents go in, one proposed source comes out."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from db.records import Verdict


class Parent(NamedTuple):
    """A judged program that is edited: its source, its id, and what the judge said of it."""

    source: str
    program_id: str
    verdict: Verdict


class Proposal(NamedTuple):
    """A source that nobody has judged yet, with how it was made: `detail` in words, "BLOCK 1024 -> 4096"."""

    source: str
    technique: str
    detail: str
    parents: tuple[str, ...]


JUDGING_COST = 100.0
"""What the judgement of any proposal costs, relative to a splice of text: 0.4 s of a GPU against 4 ms of a core."""


def cost_of(operator: Operator) -> float:
    """What a call of an operator costs, judgement included, relative to one that splices text."""
    return (JUDGING_COST + operator.cost) / (JUDGING_COST + 1)


@runtime_checkable
class Operator(Protocol):
    """Proposes a program from `n_parents` parents. One arm of the bandit.

    `cost` is what a proposal costs relative to a splice of text (1.0); a language model costs thousands. `prior` is
    what a proposal may be expected to earn before anything is known: octaves of latency, over the tries that gain
    nothing as well.
    """

    name: str
    n_parents: int
    cost: float
    prior: float

    def propose(self, parents: Sequence[Parent], rng: random.Random) -> Proposal | None:
        """One new source, or None when nothing applies.

        The same parents and the same state of `rng` give the same proposal. A proposal parses and differs from each
        parent in `program_id`. A source that cannot be understood gives None: nothing is raised for it.
        """
        ...


@runtime_checkable
class KindAware(Protocol):
    """An operator that may expect more on some kinds of kernels than on others.

    `kind_priors` has what stands in the place of its `prior` on each kind that it knows something of.
    """

    kind_priors: Mapping[str, float]


def kind_priors_of(operators: Mapping[str, Operator]) -> dict[str, Mapping[str, float]]:
    """What operators expect on kinds of kernels, by name and kind; nothing of those that take all for alike."""
    return {name: operator.kind_priors for name, operator in operators.items() if isinstance(operator, KindAware)}
