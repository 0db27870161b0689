"""Reflection: what language models that looked back have taught an island, and what an answer of theirs changes.

*Lessons* are its memory, which every reflection rewrites; what to *avoid* and what to try next is *advice*; *learnt
techniques* are those that the catalogue lacks; *opinions* say what a program leaves out or fakes. All of it is shown to
operators, and none of it decides a gate. All of it is bounded: the oldest goes first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TypeVar

from db.frozen import Record
from db.opinions import Concern, ProgramOpinion
from db.profile import BottleneckReport
from db.records import Evaluation
from db.reflections import Explanation, LearntTechnique, Lesson, Reflection
from db.techniques import CatalogueEntry, load_catalogue
from islands.llm.opinions import Opinion
from islands.llm.reflections import Reflection as ReadReflection
from islands.llm.reflections import remembered

N_LESSONS = 8
N_ADVICE = 8  # each, of what to avoid and what to try next
N_TECHNIQUES = 12
N_OPINIONS = 64
N_TO_JUDGE = 8

T = TypeVar("T")


class Taught(Record):
    """Everything that an island was taught, the oldest first."""

    lessons: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    techniques: tuple[LearntTechnique, ...] = ()
    opinions: tuple[ProgramOpinion, ...] = ()
    seen: str = ""  # id of the last candidate that a reflection was about

    def after(self, reflection: Reflection) -> Taught:
        """With what a reflection left: its lessons in the place of those before."""
        explanations = reflection.explanations
        return self.model_copy(
            update={
                "lessons": tuple(lesson.text for lesson in reflection.lessons),
                "avoid": newest((*self.avoid, *(one.avoid for one in explanations)), N_ADVICE),
                "advice": newest((*self.advice, *(one.try_next for one in explanations)), N_ADVICE),
                "seen": max((self.seen, *(one.candidate_id for one in explanations))),
            }
        ).beside(reflection.techniques, ())

    def having_found(self, findings: Findings) -> Taught:
        """With what the island itself found."""
        taught = self
        for reflection in findings.reflections:
            taught = taught.after(reflection)
        return taught.beside((), findings.opinions)

    def having_heard(self, findings: Findings) -> Taught:
        """With what is of use here of what another island found: techniques, and opinions on programs."""
        return self.beside(findings.techniques, findings.opinions)

    def beside(self, techniques: Iterable[LearntTechnique], opinions: Iterable[ProgramOpinion]) -> Taught:
        """With techniques and opinions that came up elsewhere. The first technique of a name and the last opinion on a
        program count."""
        names = {one.name for one in self.techniques}.union(load_catalogue())
        new = [one for one in techniques if one.name not in names]
        by_name = {one.name: one for one in reversed(new)}
        by_program = {one.program_id: one for one in chain(self.opinions, opinions)}
        return self.model_copy(
            update={
                "techniques": (*self.techniques, *reversed(by_name.values()))[-N_TECHNIQUES:],
                "opinions": tuple(by_program.values())[-N_OPINIONS:],
            }
        )

    def opinion_on(self, program_id: str) -> ProgramOpinion | None:
        return next((one for one in self.opinions if one.program_id == program_id), None)

    def techniques_for(self, report: BottleneckReport | None) -> list[CatalogueEntry]:
        """Learnt techniques that address what limits a program of this kind; none where nobody knows what does."""
        if report is None:
            return []
        state = report.state
        return [
            one.as_entry()
            for one in self.techniques
            if {state.primary, state.secondary} & set(one.addresses)
            and (not one.kinds or state.kernel_kind in one.kinds)
        ]


def newest(texts: Iterable[str], n: int) -> tuple[str, ...]:
    """The last `n` different texts, in their order; empty ones left out."""
    last_first = dict.fromkeys(reversed([text for text in texts if text]))
    return tuple(reversed(list(last_first)[:n]))


class Findings(Record):
    """What came of conversations since they were last taken: for the archive, and for other islands."""

    reflections: tuple[Reflection, ...] = ()
    opinions: tuple[ProgramOpinion, ...] = ()

    def plus(self, other: Findings) -> Findings:
        return Findings(reflections=(*self.reflections, *other.reflections), opinions=(*self.opinions, *other.opinions))

    @property
    def techniques(self) -> tuple[LearntTechnique, ...]:
        return tuple(one for reflection in self.reflections for one in reflection.techniques)


class ReflectionsState(Record):
    """Where the reflections of an island stand, for a file or another day. Findings are taken before."""

    taught: Taught = Taught()
    n_new: int = 0
    to_judge: tuple[Evaluation, ...] = ()


class Reflections:
    """Keeps what one island was taught, counts what it was not taught about yet, and hands on what is new."""

    def __init__(self, run_id: str = "", island: int = 0, taught: Taught | None = None) -> None:
        self._run_id = run_id
        self._island = island
        self._to_judge: deque[Evaluation] = deque(maxlen=N_TO_JUDGE)
        self._reflections: list[Reflection] = []
        self._opinions: list[ProgramOpinion] = []
        self.taught = taught or Taught()
        self.n_new = 0  # attempts since the last question about some

    # ------------------------------------------------------------------------------------------------- reflections

    def judged(self, candidate_id: str, *, is_recalled: bool = False) -> None:
        """One more attempt of a model was judged; one that is recalled may have been reflected on."""
        if not is_recalled or candidate_id > self.taught.seen:  # numbers in ids of an island have leading zeros
            self.n_new += 1

    def begin(self, about: Sequence[str]) -> None:
        """A reflection is about these candidates; no attempt so far counts any more, whatever comes of it."""
        self.n_new = 0
        self.taught = self.taught.model_copy(update={"seen": max((self.taught.seen, *about))})

    @property
    def known_techniques(self) -> list[CatalogueEntry]:
        """Those of the catalogue, then those that were learnt."""
        return [*load_catalogue().values(), *(one.as_entry() for one in self.taught.techniques)]

    def learn(self, read: ReadReflection, about: Sequence[str], model: str) -> None:
        """Takes an answer in. `about` are the ids of the candidates that the question showed, in its order."""
        reflection = self._record_of(read, about, model)
        self._reflections.append(reflection)
        self.taught = self.taught.after(reflection)

    def _record_of(self, read: ReadReflection, about: Sequence[str], model: str) -> Reflection:
        whose = {"run_id": self._run_id, "island": self._island}
        memory = remembered(self.taught.lessons, read.memory, N_LESSONS)
        return Reflection(
            **whose,
            lessons=tuple(Lesson(**whose, position=k, text=text) for k, text in enumerate(memory)),
            explanations=tuple(
                Explanation(
                    **whose,
                    candidate_id=about[one.attempt - 1],
                    diagnosis_was_right=one.diagnosis_was_right,
                    fix_worked=one.fix_worked,
                    cause=one.cause,
                    avoid=one.avoid,
                    try_next=one.try_next,
                    model=model,
                )
                for one in read.explanations
            ),
            techniques=tuple(
                LearntTechnique(run_id=self._run_id, model=model, **new._asdict()) for new in read.techniques
            ),
        )

    # ---------------------------------------------------------------------------------------------------- opinions

    def consider(self, program: Evaluation) -> None:
        """Wants an opinion on a program, unless there is one."""
        program_id = program.verdict.program_id
        if self.taught.opinion_on(program_id) is None:
            others = [one for one in self._to_judge if one.verdict.program_id != program_id]
            self._to_judge = deque((*others, program), maxlen=N_TO_JUDGE)

    @property
    def has_to_judge(self) -> bool:
        return bool(self._to_judge)

    def next_to_judge(self) -> Evaluation:
        """The program that came last: it is likelier still to matter when the answer comes.

        Raises:
            IndexError: none waits.
        """
        return self._to_judge.pop()

    def opine(self, program_id: str, read: Opinion, model: str) -> None:
        """Takes an answer in."""
        concerns = tuple(Concern(kind=one.kind.value, line=one.line, what=one.what) for one in read.concerns)
        opinion = ProgramOpinion(
            program_id=program_id, run_id=self._run_id, concerns=concerns, advice=read.advice, model=model
        )
        self._opinions.append(opinion)
        self.taught = self.taught.beside((), (opinion,))

    # ------------------------------------------------------------------------------------------------- in and out

    def hear(self, findings: Findings) -> None:
        """Takes in what another island found."""
        self.taught = self.taught.having_heard(findings)

    def take_findings(self) -> Findings:
        """What is new since the last time."""
        found = Findings(reflections=tuple(self._reflections), opinions=tuple(self._opinions))
        self._reflections.clear()
        self._opinions.clear()
        return found

    def dump(self) -> ReflectionsState:
        return ReflectionsState(taught=self.taught, n_new=self.n_new, to_judge=tuple(self._to_judge))

    def restore(self, state: ReflectionsState) -> None:
        """Goes on from what was dumped, in the place of what is known now."""
        self.taught, self.n_new = state.taught, state.n_new
        self._to_judge = deque(state.to_judge, maxlen=N_TO_JUDGE)
