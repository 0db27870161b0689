"""The notebook of an island: what its conversations found out, for those that come after them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from db.frozen import Record
from islands.bandit import MAX_GAIN_OCTAVES
from islands.llm.plans import Plan
from islands.reflection import Reflections, ReflectionsState

N_ATTEMPTS = 32
MOST_WAITING = 64
"""Plans that wait. More than a few only come about when a run goes on for long without an executor."""

FIRST_PROGRAM_OCTAVES = 1.0
"""What a correct program earns that was made of no parent."""


class WaitingPlan(Record):
    """A plan that nobody has carried out yet."""

    plan: Plan
    parent: str  # program id
    planned_in: str  # the conversation that it comes from


class ComparedAttempt(Record):
    """What a language model changed, what it expected of that, and what was measured."""

    candidate_id: str = ""
    operator: str
    program_id: str
    technique: str
    change: str
    plan: Plan | None = None  # that was carried out, if any
    diagnosis: str = ""  # that of a plan, also where an earlier sitting carried it out
    parents: tuple[str, ...] = ()
    performance_state: str = ""  # key of the first parent's
    predicted_octaves: float | None = None
    is_correct: bool = False
    octaves: float | None = None  # None: it failed, or its parent is not known any more
    came_of_it: str = ""  # latency, or why it was refused
    cause: str = ""  # of the difference, as the profiles say

    @property
    def earned(self) -> float:
        """Octaves, in [0, 2]."""
        if self.is_correct and not self.parents:
            return FIRST_PROGRAM_OCTAVES
        return min(max(self.octaves or 0.0, 0.0), MAX_GAIN_OCTAVES)


class NotebookState(Record):
    """A notebook, for a file or an archive."""

    attempts: tuple[ComparedAttempt, ...] = ()
    plans: tuple[WaitingPlan, ...] = ()
    once: tuple[str, ...] = ()  # operators that begin once, and have begun
    reflections: ReflectionsState | None = None


class Notebook:
    """What is written down. Bounded: the oldest attempts and plans go first."""

    def __init__(self, reflections: Reflections | None = None) -> None:
        self._attempts: deque[ComparedAttempt] = deque(maxlen=N_ATTEMPTS)
        self._plans: deque[WaitingPlan] = deque(maxlen=MOST_WAITING)
        self._once: set[str] = set()
        self.reflections = reflections or Reflections()

    def has_begun(self, operator: str) -> bool:
        """Whether an operator that begins once did, in this sitting or, as far as attempts say, an earlier one."""
        return operator in self._once

    def begins_once(self, operator: str) -> None:
        """Writes down that it has begun."""
        self._once.add(operator)

    @property
    def attempts(self) -> Sequence[ComparedAttempt]:
        """The oldest first."""
        return tuple(self._attempts)

    @property
    def plans(self) -> Sequence[WaitingPlan]:
        """Those that wait, in the order in which they are carried out."""
        return tuple(self._plans)

    def compare(self, attempt: ComparedAttempt, *, is_recalled: bool = False) -> None:
        """Writes down what came of an attempt, once; one that is recalled is of an earlier sitting."""
        if all(attempt.program_id != known.program_id for known in self._attempts):
            self._attempts.append(attempt)
            self._once.add(attempt.operator)
            self.reflections.judged(attempt.candidate_id, is_recalled=is_recalled)

    def plan(self, plans: Sequence[WaitingPlan]) -> None:
        """Writes down what is to be carried out."""
        self._plans.extend(plans)

    def next_plan(self) -> WaitingPlan:
        """Crosses the next plan out.

        Raises:
            IndexError: none waits.
        """
        return self._plans.popleft()

    def dump(self) -> NotebookState:
        return NotebookState(
            attempts=tuple(self._attempts),
            plans=tuple(self._plans),
            once=tuple(sorted(self._once)),
            reflections=self.reflections.dump(),
        )

    def restore(self, state: NotebookState) -> None:
        """Goes on from what was dumped, in the place of what is written now. A dump that says nothing of reflections
        leaves what the island was taught as it is."""
        self._attempts = deque(state.attempts, maxlen=N_ATTEMPTS)
        self._plans = deque(state.plans, maxlen=MOST_WAITING)
        self._once = {*state.once, *(attempt.operator for attempt in state.attempts)}
        if state.reflections is not None:
            self.reflections.restore(state.reflections)
