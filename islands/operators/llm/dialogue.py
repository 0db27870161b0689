"""A conversation with a language model as a record: where it stands, what is asked, what came of it."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from db.frozen import Record
from db.records import Hardware, Lineage, PrecisionClass, Problem
from islands.llm.exchange import Message, Request
from islands.llm.plans import Plan


class DialogueSettings(BaseModel):
    """How an island talks to language models."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    in_flight: int = Field(2, ge=1)  # questions of an island that wait for an answer
    n_repairs: int = Field(4, ge=0)  # times that a gate's reason goes back in one conversation
    prompt_tokens: int = Field(24_000, ge=1_000)
    n_inspirations: int = Field(2, ge=0)  # programs of other cells that a prompt shows
    call_limit_s: float = Field(900.0, gt=0)


class Brief(Record):
    """What prompts have to say of a run: the problem, the GPU, what host code may call, which Triton."""

    problem: Problem
    hardware: Hardware
    precision: PrecisionClass = PrecisionClass.REFERENCE
    allowed_operations: tuple[str, ...] = ()
    triton_version: str = ""


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
    plan: Plan | None = None
    technique: str = ""
    change: str = ""
    prompt_hash: str = ""  # of the last question
    n_repairs_left: int = Field(0, ge=0)
    is_repair: bool = False  # a gate's reason went back in it
    may_answer_again: bool = True  # a refused answer goes back once, after every prompt of ours
    candidate_id: str = ""  # that is being judged


class Question(Record):
    """What an island wants a model to be asked."""

    dialogue_id: str
    request: Request


class Written(Record):
    """A source that came of an answer, with how it was made."""

    source: str
    lineage: Lineage
    dialogue_id: str
