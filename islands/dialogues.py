"""Dialogues of an island with language models: which programs are shown, what comes of answers, when one is over.

A dialogue begins with a prompt about an elite. An answer that gives no program goes back with the reason, once; a
program that a gate refuses goes back with the gate's reason; both in the same conversation, until no try is left.
Everything here is pure: whoever drives the island carries questions to models and brings answers back.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from db.frozen import Record
from db.records import Hardware, Lineage, PrecisionClass, Problem, Verdict
from db.techniques import load_catalogue
from islands.grid import Occupant
from islands.llm.answers import read_answer
from islands.llm.claims import read_claim
from islands.llm.exchange import Completion, Message, Outcome, Request
from islands.llm.models import Role
from islands.llm.refusals import Refusal
from islands.prompts import Facts, ProblemFacts, render
from islands.prompts.facts import (
    failure_facts,
    first_refusal,
    gpu_facts,
    problem_facts,
    program_facts,
    technique_facts,
)
from islands.prompts.notes import notes_on
from islands.selection import SpeedWeightedSelector

MUTATE = "mutate"


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


class Question(Record):
    """What an island wants a model to be asked."""

    dialogue_id: str
    request: Request


@dataclass
class Dialogue:
    """One conversation about one parent. `base` is the source that the next answer edits."""

    dialogue_id: str
    parent: Occupant
    messages: list[Message]
    base: str
    n_repairs_left: int
    state: Literal["asked", "ready", "judged"] = "ready"
    may_answer_again: bool = True  # a refused answer goes back once, after every prompt of ours
    prompt_hash: str = ""  # of the last question
    technique: str = ""
    change: str = ""
    known: set[str] = field(default_factory=set)  # sources that were judged in this conversation

    def say(self, messages: Sequence[Message]) -> None:
        """Adds a prompt; the next question asks it."""
        self.messages.extend(messages)
        self.state = "ready"


class Written(Record):
    """A source that came of an answer, with how it was made."""

    source: str
    lineage: Lineage
    dialogue_id: str


class Dialogues:
    """All dialogues of one island."""

    def __init__(self, brief: Brief, settings: DialogueSettings, island_id: int) -> None:
        self._settings = settings
        self._island_id = island_id
        self._entry_point = brief.problem.entry_point.value
        self._hardware = brief.hardware
        self._facts = Facts(
            problem=_problem_facts(brief), gpu=gpu_facts(brief.hardware), notes=notes_on(brief.triton_version)
        )
        self._selector = SpeedWeightedSelector()
        self._open: dict[str, Dialogue] = {}
        self._ready: deque[str] = deque()  # dialogues that go on
        self._judged: dict[str, str] = {}  # dialogue by candidate id
        self._next_number = 0

    def ask(self, n: int, elites: Sequence[Occupant], rng: random.Random) -> list[Question]:
        """At most `n` questions: dialogues that go on first, then new ones about the fastest elites."""
        n_asked = sum(dialogue.state == "asked" for dialogue in self._open.values())
        questions = []
        for _ in range(min(n, self._settings.in_flight - n_asked)):
            if not self._ready and not elites:
                break
            dialogue = self._open[self._ready.popleft()] if self._ready else self._begin(elites, rng)
            dialogue.state = "asked"
            questions.append(self._question(dialogue))
        return questions

    def answered(self, dialogue_id: str, outcome: Outcome) -> Written | None:
        """Takes an answer in: a source that wants to be judged, or None where the dialogue goes on or is over."""
        dialogue = self._open[dialogue_id]
        if not isinstance(outcome, Completion):
            self._end(dialogue)
            return None
        dialogue.messages.append(Message(role="assistant", content=outcome.text))
        read = read_answer(
            outcome.text,
            dialogue.base,
            entry_point=self._entry_point,
            finish_reason=outcome.finish_reason,
            others=tuple(dialogue.known),
        )
        if isinstance(read, Refusal):
            self._answer_again(dialogue, read)
            return None
        dialogue.base, dialogue.may_answer_again, dialogue.state = read.source, True, "judged"
        dialogue.known.add(read.source)
        return Written(source=read.source, lineage=_lineage_of(dialogue, outcome), dialogue_id=dialogue_id)

    def admitted(self, dialogue_id: str, candidate_id: str) -> None:
        """The source of a dialogue is on its way to the judge."""
        self._judged[candidate_id] = dialogue_id

    def declined(self, dialogue_id: str) -> None:
        """The source of a dialogue is a program that was asked before: nothing more can come of it."""
        self._end(self._open[dialogue_id])

    def told(self, candidate_id: str, verdict: Verdict) -> None:
        """A verdict on a source of a dialogue, or on any other candidate."""
        dialogue = self._open.get(self._judged.pop(candidate_id, ""))
        if dialogue is None:
            return
        refused = first_refusal(verdict)
        if refused is None or verdict.is_correct or not dialogue.n_repairs_left:
            self._end(dialogue)
            return
        failure = failure_facts(refused, dialogue.base, dialogue.n_repairs_left)
        dialogue.n_repairs_left -= 1
        self._go_on(dialogue, "repair", self._facts._replace(failure=failure))

    @property
    def is_waiting(self) -> bool:
        """Whether an answer or a verdict is out that may bring more."""
        return bool(self._open)

    def _begin(self, elites: Sequence[Occupant], rng: random.Random) -> Dialogue:
        parent = self._selector.select(elites, rng)
        others = [elite for elite in elites if elite.program_id != parent.program_id]
        prompt = render(MUTATE, self._about(parent, others), self._settings.prompt_tokens)
        dialogue = Dialogue(
            dialogue_id=f"{self._island_id}-{self._next_number:05d}",
            parent=parent,
            messages=list(prompt.messages),
            base=parent.candidate.source,
            n_repairs_left=self._settings.n_repairs,
        )
        self._next_number += 1
        self._open[dialogue.dialogue_id] = dialogue
        return dialogue

    def _about(self, parent: Occupant, others: Sequence[Occupant]) -> Facts:
        """The facts of a prompt about one program."""
        report = parent.verdict.bottleneck
        catalogue = load_catalogue()
        advised = [catalogue[name] for name in (report.techniques if report else ()) if name in catalogue]
        inspirations = others[: self._settings.n_inspirations]
        return self._facts._replace(
            parents=(program_facts(parent.candidate.source, parent.verdict, self._hardware),),
            techniques=technique_facts(advised),
            inspirations=tuple(program_facts(o.candidate.source, o.verdict, self._hardware) for o in inspirations),
        )

    def _answer_again(self, dialogue: Dialogue, refusal: Refusal) -> None:
        if not dialogue.may_answer_again:
            self._end(dialogue)
            return
        dialogue.may_answer_again = False
        self._go_on(dialogue, "refused", self._facts._replace(refusal=refusal.reason))

    def _go_on(self, dialogue: Dialogue, prompt: str, facts: Facts) -> None:
        dialogue.say(render(prompt, facts, self._settings.prompt_tokens).messages)
        self._ready.append(dialogue.dialogue_id)

    def _end(self, dialogue: Dialogue) -> None:
        del self._open[dialogue.dialogue_id]

    def _question(self, dialogue: Dialogue) -> Question:
        request = Request(
            messages=tuple(dialogue.messages),
            role=Role.EXECUTOR,
            operator=MUTATE,
            island=self._island_id,
            limit_s=self._settings.call_limit_s,
        )
        dialogue.prompt_hash = request.prompt_hash
        return Question(dialogue_id=dialogue.dialogue_id, request=request)


def _lineage_of(dialogue: Dialogue, completion: Completion) -> Lineage:
    """What the model says that it did; a repair that says nothing keeps what was said before."""
    claim, report = read_claim(completion.text), dialogue.parent.verdict.bottleneck
    dialogue.technique = claim.technique or dialogue.technique or MUTATE
    dialogue.change = claim.change or dialogue.change
    return Lineage(
        operator=MUTATE,
        technique=dialogue.technique,
        parents=(dialogue.parent.program_id,),
        detail=dialogue.change,
        model=completion.model,
        prompt_hash=dialogue.prompt_hash,
        state=report.state.key if report else "",
        predicted_octaves=claim.octaves,
    )


def _problem_facts(brief: Brief) -> ProblemFacts:
    return problem_facts(brief.problem, brief.precision, brief.allowed_operations)
