"""What a dialogue operator is: a stage goes in, the first prompt of a conversation comes out, and answers are read."""

from __future__ import annotations

import random
from typing import NamedTuple, Protocol, runtime_checkable

from islands.grid import Occupant
from islands.llm.answers import read_answer
from islands.llm.exchange import Completion, Message
from islands.llm.models import Role
from islands.llm.plans import Plan
from islands.llm.refusals import Answer, Refusal
from islands.operators.llm.dialogue import DialogueState
from islands.operators.llm.stage import Stage


class Opening(NamedTuple):
    """The first prompt of a conversation, and what its answer is about."""

    messages: tuple[Message, ...]
    parents: tuple[Occupant, ...] = ()
    base: str = ""  # the source that the answer edits; empty: the answer is a whole program, or none
    known: tuple[str, ...] = ()  # other sources that the answer must not equal
    plan: Plan | None = None  # that is carried out
    planned_in: str = ""  # the conversation that the plan comes from
    technique: str = ""
    about: tuple[str, ...] = ()  # ids of what an answer that is no program is about


Reading = Answer | Refusal | None
"""What an answer is: a source, a refusal that goes back, or None where it was taken in and nothing is to be judged."""


@runtime_checkable
class DialogueOperator(Protocol):
    """Begins conversations of one kind. It remembers nothing: what is to be kept goes into the stage's notebook.

    One that `comes_first` begins whenever it applies, because what it needs is paid for already; among the others a
    bandit chooses.
    """

    name: str
    role: Role
    n_parents: int
    comes_first: bool

    def applies(self, stage: Stage) -> bool:
        """Whether it could begin now. Cheap: it is asked before every question."""
        ...

    def begin(self, stage: Stage, rng: random.Random) -> Opening | None:
        """A conversation, or None when there is nothing to say. The same stage and `rng`, the same opening."""
        ...

    def read(self, completion: Completion, dialogue: DialogueState, stage: Stage) -> Reading:
        """What an answer is. Never raises for what a model wrote."""
        ...


class Author:
    """What operators have in common whose answer is a program. A base for them."""

    role = Role.EXECUTOR
    comes_first = False

    def read(self, completion: Completion, dialogue: DialogueState, stage: Stage) -> Reading:
        return read_answer(
            completion.text,
            dialogue.base,
            entry_point=stage.brief.problem.entry_point.value,
            finish_reason=completion.finish_reason,
            others=dialogue.known,
        )
