"""Dialogues of an island with language models: who is asked next, what comes of answers, when one is over.

A conversation begins with an operator's prompt. An answer that cannot be read goes back with the reason, once; a
program that a gate refuses goes back with the gate's reason; both in the same conversation, until no try is left.
Everything here is pure: whoever drives the island carries questions to models and brings answers back.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from db.frozen import Record
from db.records import Lineage, Verdict
from islands.grid import Occupant
from islands.knowledge import KnowledgeBase
from islands.llm.bandit import BanditState
from islands.llm.claims import read_claim
from islands.llm.exchange import Completion, Failure, Message, Outcome, Request
from islands.llm.plans import Plan
from islands.llm.refusals import Refusal
from islands.operators.llm import DialogueOperator, Opening, Stage, dialogue_operators
from islands.operators.llm.ancestry import Ancestry
from islands.operators.llm.attempts import as_knowledge, compared
from islands.operators.llm.choice import Choice, PlanAccount, paid
from islands.operators.llm.dialogue import ArmSpend, Brief, DialogueSettings, DialogueState, Phase, Question, Written
from islands.operators.llm.judge import Judge
from islands.operators.llm.notebook import ComparedAttempt, Notebook, NotebookState, WaitingPlan
from islands.operators.llm.reflect import Reflect
from islands.operators.llm.repair import answer_again, repair
from islands.operators.llm.stage import facts_of
from islands.prompts.facts import first_refusal
from islands.reflection import Reflections, Taught

__all__ = [
    "ArmSpend",
    "Brief",
    "DialogueSettings",
    "DialogueState",
    "Dialogues",
    "DialoguesState",
    "Question",
    "Written",
]


class DialoguesState(Record):
    """All conversations of an island, and what they left behind: for a file, or for another day."""

    dialogues: tuple[DialogueState, ...] = ()
    notebook: NotebookState = NotebookState()
    bandit: BanditState = BanditState(earnings=())
    plans: tuple[PlanAccount, ...] = ()
    next_number: int = 0


class Dialogues:
    """All conversations of one island."""

    def __init__(
        self,
        brief: Brief,
        settings: DialogueSettings,
        island_id: int,
        knowledge: KnowledgeBase | None = None,
        taught: Taught | None = None,
    ) -> None:
        """`knowledge` is the island's own, where its strategy has any: prompts show it, and it hears of attempts.

        `taught` is what reflection and the judge taught it before.
        """
        self._brief = brief
        self._settings = settings
        self._island_id = island_id
        self._knowledge = knowledge
        self._facts = facts_of(brief)
        self._operators: dict[str, DialogueOperator] = {one.name: one for one in dialogue_operators(settings)}
        self._choice = Choice(brief.models)
        self._ancestry = Ancestry()
        self.notebook = Notebook(Reflections(brief.run_id, island_id, taught))
        self._open: dict[str, DialogueState] = {}
        self._ready: deque[str] = deque()  # dialogues that go on
        self._next_number = 0
        self._is_restored = False

    # ------------------------------------------------------------------------------------------------ ask and answer

    def ask(self, n: int, elites: Sequence[Occupant], rng: random.Random) -> list[Question]:
        """At most `n` questions: conversations that go on, then plans that wait, then what the bandit chooses."""
        n_asked = sum(dialogue.phase is Phase.ASKED for dialogue in self._open.values())
        questions: list[Question] = []
        for _ in range(min(n, self._settings.in_flight - n_asked)):
            dialogue = self._open[self._ready.popleft()] if self._ready else self._begin(elites, rng)
            if dialogue is None:
                break
            questions.append(self._question(dialogue))
        return questions

    def ask_judge(self, rng: random.Random) -> Question | None:
        """The next question about a program to consider, whatever else is asked or ready; None where there is none."""
        judge, stage = self._operators[Judge.name], self._stage(())
        dialogue = next((self._open[one] for one in self._ready if self._open[one].operator == Judge.name), None)
        if dialogue is not None:
            self._ready.remove(dialogue.dialogue_id)
        elif judge.applies(stage):
            dialogue = self._begin_with([judge], stage, rng)
        return self._question(dialogue) if dialogue else None

    def ask_reflection(self, rng: random.Random) -> Question | None:
        """The next question about attempts that nobody looked back at, however few; None where there are none.

        For the end of a run: a reflection whose answer is out is asked for again.
        """
        dialogue = next((one for one in self._open.values() if one.operator == Reflect.name), None)
        if dialogue is not None and dialogue.dialogue_id in self._ready:
            self._ready.remove(dialogue.dialogue_id)
        elif dialogue is None and self._settings.reflect_every and self.notebook.reflections.n_new:
            dialogue = self._begin_with([self._operators[Reflect.name]], self._stage(()), rng)
        return self._question(dialogue) if dialogue else None

    def answered(self, dialogue_id: str, outcome: Outcome) -> Written | None:
        """Takes an answer in: a source that wants to be judged, or None where the conversation goes on or is over, or
        was lost with the process that held it."""
        if dialogue_id not in self._open:
            return None
        dialogue = self._open[dialogue_id]
        if dialogue_id in self._ready:  # an answer to a question of an earlier sitting
            self._ready.remove(dialogue_id)
        dialogue = self._keep(dialogue, **paid(dialogue, outcome))
        if not isinstance(outcome, Completion):
            self._give_up(dialogue, outcome)
            return None
        said = Message(role="assistant", content=outcome.text)
        dialogue = self._keep(dialogue, messages=(*dialogue.messages, said), may_wait=True)
        stage = self._stage(())
        read = self._operators[dialogue.operator].read(outcome, dialogue, stage)
        if read is None:
            self._end(dialogue)
        elif isinstance(read, Refusal):
            self._answer_again(dialogue, read, stage)
        else:
            return self._written(dialogue, read.source, outcome)
        return None

    def admitted(self, dialogue_id: str, candidate_id: str) -> None:
        """The source of a conversation is on its way to the judge."""
        self._keep(self._open[dialogue_id], candidate_id=candidate_id)

    def declined(self, dialogue_id: str) -> None:
        """The source of a conversation is a program that was asked before: nothing more can come of it."""
        self._end(self._open[dialogue_id])

    def told(self, candidate_id: str, verdict: Verdict, lineage: Lineage | None = None) -> None:
        """A verdict on a source of a conversation, or on any other candidate.

        What a model wrote in a conversation that nobody knows was judged in an earlier sitting.
        """
        dialogue = next((one for one in self._open.values() if one.candidate_id == candidate_id), None)
        if dialogue is None:
            if lineage is not None and lineage.model:
                self._choice.recall(lineage, self._compare(lineage, verdict, is_recalled=True).earned)
            return
        refused = first_refusal(verdict)
        if refused is not None and not verdict.is_correct and dialogue.n_repairs_left:
            messages = repair(dialogue, refused, self._stage(()))
            left = dialogue.n_repairs_left - 1
            self._go_on(dialogue, messages, n_repairs_left=left, is_repair=True, candidate_id="")
            return
        attempt = self._compare(dialogue.lineage, verdict, dialogue.plan)
        self._end(dialogue, attempt.earned)

    def seen(self, program: Occupant) -> None:
        """A correct program came to the island, its own or a migrant: it may be an ancestor."""
        self._ancestry.see(program)

    def revised(self, verdict: Verdict) -> None:
        """Counters said more of a program that may be an ancestor, or one that plans wait for."""
        self._ancestry.revise(verdict)

    # ------------------------------------------------------------------------------------------------- what is known

    @property
    def is_waiting(self) -> bool:
        """Whether an answer or a verdict is out that may bring more."""
        return bool(self._open)

    @property
    def recent_attempts(self) -> Sequence[ComparedAttempt]:
        """What models changed of late, with what was predicted and measured; the oldest first."""
        return self.notebook.attempts

    def dump(self) -> DialoguesState:
        """Every conversation that is not over, and what they left behind, for `restore`."""
        bandit, plans = self._choice.dump()
        return DialoguesState(
            dialogues=tuple(self._open.values()),
            notebook=self.notebook.dump(),
            bandit=bandit,
            plans=plans,
            next_number=self._next_number,
        )

    def restore(self, state: DialoguesState) -> None:
        """Goes on from what was dumped, in the place of what is known now. Before verdicts are told.

        What was asked and not answered is asked again, word for word, unless its answer comes first.
        """
        self._open = {one.dialogue_id: one for one in state.dialogues}
        self._ready = deque(one.dialogue_id for one in state.dialogues if one.phase is not Phase.JUDGED)
        self.notebook.restore(state.notebook)
        self._choice.restore(state.bandit, state.plans)
        for one in state.dialogues:
            self._keep(one, phase=Phase.JUDGED if one.phase is Phase.JUDGED else Phase.READY)
            self._choice.asked(one)
        self._next_number = state.next_number
        self._is_restored = True

    def resume(self) -> list[Written]:
        """Everything of earlier sittings was told. What was written and never judged comes back, to be admitted or
        declined anew."""
        if not self._is_restored:
            self._choice.resume(self._brief.spent)
        waiting = [one for one in self._open.values() if one.phase is Phase.JUDGED]
        return [Written(source=one.base, lineage=one.lineage, dialogue_id=one.dialogue_id) for one in waiting]

    # --------------------------------------------------------------------------------------------------- in between

    def _begin(self, elites: Sequence[Occupant], rng: random.Random) -> DialogueState | None:
        stage = self._stage(elites)
        applying = [one for one in self._operators.values() if one.applies(stage)]
        first, others = [o for o in applying if o.comes_first], [o for o in applying if not o.comes_first]
        return self._begin_with(first, stage, rng) or self._begin_with(others, stage, rng)

    def _begin_with(self, left: list[DialogueOperator], stage: Stage, rng: random.Random) -> DialogueState | None:
        """A conversation of one of these operators, that the bandit chooses."""
        while left and (chosen := self._choice.choose(left, rng)):
            operator, model = chosen
            opening = operator.begin(stage, rng)
            if opening is not None:
                return self._opened(operator, model, opening)
            left.remove(operator)
        return None

    def _opened(self, operator: DialogueOperator, model: str, opening: Opening) -> DialogueState:
        report = opening.parents[0].verdict.bottleneck if opening.parents else None
        dialogue = DialogueState(
            dialogue_id=f"{self._island_id}-{self._next_number:05d}",
            operator=operator.name,
            model=model,
            messages=opening.messages,
            parents=tuple(parent.program_id for parent in opening.parents),
            performance_state=report.state.key if report else "",
            base=opening.base,
            known=opening.known,
            plan=opening.plan,
            planned_in=opening.planned_in,
            about=opening.about,
            technique=opening.technique,
            n_repairs_left=self._settings.n_repairs,
        )
        self._next_number += 1
        self._open[dialogue.dialogue_id] = dialogue
        for parent in opening.parents:
            self._ancestry.see(parent)
        self._choice.asked(dialogue)
        return dialogue

    def _stage(self, elites: Sequence[Occupant]) -> Stage:
        return Stage(
            brief=self._brief,
            settings=self._settings,
            facts=self._facts,
            elites=elites,
            ancestry=self._ancestry,
            notebook=self.notebook,
            knowledge=self._knowledge,
            under_way=frozenset(dialogue.operator for dialogue in self._open.values()),
        )

    def _question(self, dialogue: DialogueState) -> Question:
        request = Request(
            messages=dialogue.messages,
            role=self._operators[dialogue.operator].role,
            preferred=dialogue.answered_by or dialogue.model,
            operator=dialogue.asks,
            island=self._island_id,
            limit_s=self._settings.call_limit_s,
        )
        self._keep(dialogue, phase=Phase.ASKED, prompt_hash=request.prompt_hash)
        return Question(dialogue_id=dialogue.dialogue_id, request=request)

    def _written(self, dialogue: DialogueState, source: str, completion: Completion) -> Written:
        """What the model says that it did; a repair that says nothing keeps what was said before."""
        claim, plan = read_claim(completion.text), dialogue.plan
        dialogue = self._keep(
            dialogue,
            phase=Phase.JUDGED,
            base=source,
            known=(*dialogue.known, source),
            may_answer_again=True,
            technique=claim.technique or dialogue.technique or dialogue.operator,
            change=claim.change or dialogue.change or (plan.change if plan else ""),
            predicted_octaves=plan.octaves if plan else claim.octaves,
        )
        return Written(source=source, lineage=dialogue.lineage, dialogue_id=dialogue.dialogue_id)

    def _compare(
        self, lineage: Lineage, verdict: Verdict, plan: Plan | None = None, *, is_recalled: bool = False
    ) -> ComparedAttempt:
        """Writes down what came of a source, and lets knowledge hear of it."""
        parents = [known for one in lineage.parents if (known := self._ancestry.find(one)) is not None]
        attempt = compared(lineage, verdict, parents, plan)
        self.notebook.compare(attempt, is_recalled=is_recalled)
        if self._knowledge is not None and parents:
            self._knowledge.heard(as_knowledge(attempt, parents[0]))
        return attempt

    def _answer_again(self, dialogue: DialogueState, refusal: Refusal, stage: Stage) -> None:
        if not dialogue.may_answer_again:
            self._end(dialogue)
            return
        self._go_on(dialogue, answer_again(refusal, stage), may_answer_again=False)

    def _go_on(self, dialogue: DialogueState, messages: Iterable[Message], **changes: Any) -> None:
        self._keep(dialogue, phase=Phase.READY, messages=(*dialogue.messages, *messages), **changes)
        self._ready.append(dialogue.dialogue_id)

    def _keep(self, dialogue: DialogueState, **changes: Any) -> DialogueState:
        changed = dialogue.model_copy(update=changes)
        self._open[dialogue.dialogue_id] = changed
        return changed

    def _give_up(self, dialogue: DialogueState, failure: Failure) -> None:
        """Nobody answered. What is paid for waits, where that may pass: a conversation once, a plan that nobody began
        to carry out as long as it takes."""
        has_begun = any(message.role == "assistant" for message in dialogue.messages)
        if has_begun and dialogue.may_wait and failure.may_pass:
            self._go_on(dialogue, (), may_wait=False)
            return
        if dialogue.plan is not None and not has_begun and not failure.is_final:
            waiting = WaitingPlan(plan=dialogue.plan, parent=dialogue.parents[0], planned_in=dialogue.planned_in)
            self.notebook.plan([waiting])
            dialogue = dialogue.model_copy(update={"planned_in": ""})  # its account stays open
        self._end(dialogue)

    def _end(self, dialogue: DialogueState, octaves: float = 0.0) -> None:
        del self._open[dialogue.dialogue_id]
        n_plans = sum(one.planned_in == dialogue.dialogue_id for one in self.notebook.plans)
        self._choice.ended(dialogue, octaves, n_plans)
