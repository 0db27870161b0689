"""A conversation with a language model as a record: where it stands, what is asked, what came of it."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from db.frozen import Record
from db.records import Hardware, Lineage, PrecisionClass, Problem
from islands.llm.exchange import Message, Request
from islands.llm.models import ModelSpec
from islands.llm.plans import Plan

REPAIR = "repair"
"""The operator of what comes of a conversation after a gate refused a program of it, whoever began it."""


class DialogueSettings(BaseModel):
    """How an island talks to language models."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    in_flight: int = Field(2, ge=1)  # questions of an island that wait for an answer
    n_repairs: int = Field(4, ge=0)  # times that a gate's reason goes back in one conversation
    prompt_tokens: int = Field(24_000, ge=1_000)
    n_inspirations: int = Field(2, ge=0)  # programs of other cells that a prompt shows
    n_plans: int = Field(4, ge=1, le=16)  # that a planner proposes, and executors carry out
    operators: tuple[Literal["mutate", "crossover", "plan", "fuse"], ...] = Field(
        ("mutate", "crossover", "plan", "fuse"), min_length=1
    )  # that conversations about elites begin with
    call_limit_s: float = Field(900.0, gt=0)
    reflect_every: int = Field(8, ge=0)  # judged attempts of models until one is asked what they teach; 0: never


class ArmSpend(Record):
    """What earlier sittings of a run paid one model for one operator: the share of one island."""

    model: str
    operator: str
    n_calls: float = Field(ge=0)
    usd: float | None  # None: the model is unpriced
    seconds: float = Field(ge=0)


class Brief(Record):
    """What conversations have to know of a run: the problem, the GPU, what host code may call, whom to ask.

    Without `models` any model of a role is asked, as in a replay that names none.
    """

    run_id: str = ""
    problem: Problem
    hardware: Hardware
    precision: PrecisionClass = PrecisionClass.REFERENCE
    allowed_operations: tuple[str, ...] = ()
    triton_version: str = ""
    models: tuple[ModelSpec, ...] = ()
    spent: tuple[ArmSpend, ...] = ()


class Phase(StrEnum):
    """What a conversation waits for."""

    READY = "ready"  # to be asked
    ASKED = "asked"  # for an answer
    JUDGED = "judged"  # for a verdict


class DialogueState(Record):
    """Everything that one conversation needs to go on, in another process or on another day."""

    dialogue_id: str
    operator: str  # that began it
    phase: Phase = Phase.READY
    messages: tuple[Message, ...]
    parents: tuple[str, ...] = ()  # program ids
    performance_state: str = ""  # key of the first parent's
    base: str = ""  # the source that the next answer edits; empty where there is none
    known: tuple[str, ...] = ()  # other sources that an answer must not equal: second parents, and what was judged
    plan: Plan | None = None  # that it carries out
    planned_in: str = ""  # the conversation that the plan comes from
    about: tuple[str, ...] = ()  # ids of what an answer that is no program is about
    technique: str = ""
    change: str = ""
    predicted_octaves: float | None = None
    prompt_hash: str = ""  # of the last question
    n_repairs_left: int = Field(0, ge=0)
    is_repair: bool = False  # a gate's reason went back in it
    may_answer_again: bool = True  # a refused answer goes back once, after every prompt of ours
    may_wait: bool = True  # where nobody answers it is asked again a while later, once after every answer
    candidate_id: str = ""  # that is being judged
    model: str = ""  # the id of the one that is preferred; empty: any of the role
    answered_by: str = ""  # the one that answered last
    cost_usd: float | None = 0.0  # of all its answers; None: an unpriced model gave one
    seconds: float = 0.0

    @property
    def asks(self) -> str:
        """The operator that asks its next question, and makes what comes of it."""
        return REPAIR if self.is_repair else self.operator

    @property
    def lineage(self) -> Lineage:
        """How its last source was made."""
        return Lineage(
            operator=self.asks,
            technique=self.technique,
            parents=self.parents,
            detail=self.change,
            diagnosis=self.plan.diagnosis if self.plan else "",
            model=self.answered_by,
            prompt_hash=self.prompt_hash,
            state=self.performance_state,
            predicted_octaves=self.predicted_octaves,
        )


class Question(Record):
    """What an island wants a model to be asked."""

    dialogue_id: str
    request: Request


class Written(Record):
    """A source that came of an answer, with how it was made."""

    source: str
    lineage: Lineage
    dialogue_id: str
