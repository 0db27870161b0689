"""The order of it all: take apart, search part by part, put the winners together, judge, and say what became of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from db.records import Problem
from evaluators.decomposition.classify import (
    GAIN,
    ModelOutcome,
    ModelResult,
    RootCause,
    outcome_of,
    whole_only,
)
from evaluators.decomposition.decompose import stitch
from evaluators.decomposition.errors import DecompositionError
from evaluators.decomposition.records import Decomposition, PartProblem
from evolve.models.budget import WHOLE_SHARE, Allotment, allotted, expected_gain
from evolve.models.choice import best_apart, covering, is_winner
from evolve.models.delivery import Attempting, deliver
from evolve.models.records import (
    STITCH,
    Attempt,
    Found,
    ModelEvent,
    ModelRun,
    OnModelEvent,
    PartResult,
    PutTogether,
    SearchBegins,
    SearchEnded,
    TakenApart,
)

WHOLE = "whole"
NO_BUDGET = "the budget was spent on parts that take more time"
INTERRUPTED = "interrupted"
COVERED = "a part of {}, which got faster as a whole"


def ignore(event: ModelEvent) -> None:
    """An `on_event` that watches nothing."""


class Tools(NamedTuple):
    """What the order is over.

    `search(name, problem, allotment)` searches one problem; `judge(source, parts)` judges a file as a program of the
    whole model, made of the winners of `parts`.
    """

    take_apart: Callable[[Problem], Decomposition]
    search: Callable[[str, Problem, Allotment], Found]
    judge: Callable[[str, Sequence[PartResult]], Attempt]


def improve(
    problem: Problem,
    tools: Tools,
    budget: Allotment,
    *,
    tries_whole: bool = False,
    on_event: OnModelEvent = ignore,
) -> ModelRun:
    """A model improved as far as the budget goes.

    Args:
        problem: its reference is a module.
        tries_whole: whether the module itself is searched too: it has a first program, or somebody to ask for one.
    """
    start = time.monotonic()
    decomposition = tools.take_apart(problem)
    on_event(TakenApart(decomposition=decomposition))
    alone = whole_only(decomposition)
    searches = _Searches(tools, budget, on_event)
    whole = searches.whole(problem, alone) if tries_whole else None
    parts = searches.parts(decomposition.parts) if alone is None else []
    is_lean = bool(decomposition.left_out)
    attempts = deliver(best_apart(parts), _attempting(decomposition, tools, on_event), is_lean=is_lean)
    result, source = _ending(attempts, whole, alone, parts, is_lean)
    delivered = attempts[-1] if source and attempts and source == attempts[-1].source else None
    return ModelRun(
        problem_name=problem.name,
        problem_id=problem.problem_id,
        result=result,
        decomposition=decomposition,
        parts=tuple(_as_delivered(part, delivered) for part in parts),
        whole=whole,
        attempts=tuple(attempts),
        best_source=source,
        is_interrupted=searches.is_interrupted,
        elapsed_s=time.monotonic() - start,
    )


class _Searches:
    """One search after the other out of one budget, until it is spent or somebody interrupts."""

    def __init__(self, tools: Tools, budget: Allotment, on_event: OnModelEvent) -> None:
        self._search = tools.search
        self._left = budget
        self._on_event = on_event
        self.is_interrupted = False

    def whole(self, problem: Problem, alone: tuple[RootCause, str] | None) -> Found:
        """The module itself, within a small share of the budget.

        Where nobody could take it apart, nothing says that there is little to gain, and it gets all.
        """
        is_small = alone is None or alone[0] is not RootCause.NOT_DECOMPOSED
        shares = [WHOLE_SHARE, 1 - WHOLE_SHARE] if is_small else [1.0]
        return self._one(WHOLE, 1.0, problem, allotted(self._left, shares))

    def parts(self, parts: Sequence[PartProblem]) -> list[PartResult]:
        """Every part, in order of the time that it may win back.

        One that a larger part stands for gets nothing of the budget unless the larger one was searched and won nothing.
        """
        larger = {part.part.name: covering(part, parts) for part in parts}
        results: dict[str, PartResult] = {}

        def is_due(part: PartProblem) -> bool:
            return (its := larger[part.part.name]) == "" or (its in results and not is_winner(results[its]))

        gains = {part.part.name: expected_gain(part) for part in parts}

        def turn(part: PartProblem) -> tuple[float, bool]:
            around = larger[part.part.name]  # which comes first
            return -min(gains[part.part.name], gains.get(around, 1.0)), around != ""

        waiting = sorted(parts, key=turn)
        while waiting:
            shares = [gains[part.part.name] for part in waiting if is_due(part)]
            part = waiting.pop(0)
            name = part.part.name
            found = self._part(part, shares) if is_due(part) else Found(reason=COVERED.format(larger[name]))
            results[name] = _part_result(part, found)
        return list(results.values())

    def _part(self, part: PartProblem, shares: Sequence[float]) -> Found:
        if self.is_interrupted or not self._left.is_enough:
            return Found(reason=INTERRUPTED if self.is_interrupted else NO_BUDGET)
        allotment = allotted(self._left, shares)
        return self._one(part.part.name, part.share, part.problem, allotment, is_rewritten=part.is_rewritten)

    def _one(
        self, name: str, share: float, problem: Problem, allotment: Allotment, *, is_rewritten: bool = False
    ) -> Found:
        begins = SearchBegins(name=name, share=share, evaluations=allotment.evaluations, time_s=allotment.time_s)
        self._on_event(begins)
        found = self._search(name, problem, allotment)
        if is_rewritten:  # what the model runs is what the compiler makes of the part, not the first program
            found = _over_compiled(found)
        self._left = self._left.less(found.n_judged, found.elapsed_s)
        self.is_interrupted = self.is_interrupted or found.is_interrupted
        self._on_event(SearchEnded(name=name, found=found))
        return found


def _over_compiled(found: Found) -> Found:
    """Every speed-up over what the compiler makes of the problem by itself."""
    others = [one.model_copy(update={"speedup": one.over_baseline or 1.0}) for one in found.runners_up]
    gaining = tuple(one for one in others if one.speedup > GAIN)
    return found.model_copy(update={"speedup": found.over_baseline, "runners_up": gaining})


def _as_delivered(part: PartResult, delivered: Attempt | None) -> PartResult:
    """A part with the program of it that was delivered, which may be a runner-up."""
    used = dict(zip(delivered.parts, delivered.programs, strict=True)) if delivered else {}
    return part.with_program(used.get(part.name, "")).model_copy(update={"is_used": part.name in used})


def _part_result(part: PartProblem, found: Found) -> PartResult:
    its = part.part
    return PartResult(name=its.name, first=its.first, last=its.last, kernels=its.kernels, share=part.share, found=found)


def _attempting(decomposition: Decomposition, tools: Tools, on_event: OnModelEvent) -> Attempting:
    def attempt(chosen: Sequence[PartResult], note: str) -> Attempt:
        told = {
            "programs": tuple(part.found.program_id for part in chosen),
            "runners_up": tuple(part.name for part in chosen if part.has_runner_up),
            "note": note,
        }
        judged = _judged(decomposition, tools, chosen).model_copy(update=told)
        on_event(PutTogether(attempt=judged))
        return judged

    return attempt


def _judged(decomposition: Decomposition, tools: Tools, chosen: Sequence[PartResult]) -> Attempt:
    """A winner that cannot stand in a larger file is a refusal like any other."""
    try:
        source = stitch(decomposition, {part.name: part.found.source for part in chosen})
    except DecompositionError as error:
        names = tuple(part.name for part in chosen)
        return Attempt(parts=names, refused_by=STITCH, reason=error.message)
    return tools.judge(source, chosen)


# ------------------------------------------------------------------------------------------------------------- endings


def _ending(
    attempts: Sequence[Attempt],
    whole: Found | None,
    alone: tuple[RootCause, str] | None,
    parts: Sequence[PartResult],
    is_lean: bool,
) -> tuple[ModelResult, str]:
    """The outcome, and the delivered source where there is one."""
    delivered = attempts[-1] if attempts and attempts[-1].is_accepted else None
    speedup, source = (delivered.speedup, delivered.source) if delivered else (_closest(attempts, is_lean), "")
    if whole and whole.speedup and whole.speedup > max(GAIN, (speedup or 0.0) if delivered else 0.0):
        speedup, source = whole.speedup, whole.source
    was_synthesised = bool(whole.source) if whole and not whole.has_failed else None
    alone = alone or _failed(parts)
    refused_by = attempts[-1].refused_by if attempts else ""
    result = outcome_of(speedup, refused_by=refused_by, was_synthesised=was_synthesised, alone=alone)
    if result.outcome is ModelOutcome.MATCHED:
        result = result.model_copy(update={"reason": _why_matched(attempts)})
    elif result.cause is RootCause.CORRECTNESS and attempts:
        what = "what the compiler wrote is" if attempts[-1].is_compilers_fault else "every file was"
        reason = f"{what} refused by the {refused_by} gate: {attempts[-1].reason}"
        result = result.model_copy(update={"reason": reason})
    return result, source if result.outcome is ModelOutcome.OPTIMIZED else ""


def _failed(parts: Sequence[PartResult]) -> tuple[RootCause, str] | None:
    """Where no search came to its end nothing is known of the parts, least of all that they cannot get faster."""
    begun = [part for part in parts if part.found.has_failed or part.found.n_judged]
    failed = [part for part in begun if part.found.has_failed]
    if not failed or len(failed) < len(begun):
        return None
    return RootCause.SEARCHES, f"{failed[0].name}: {failed[0].found.reason}"


def _why_matched(attempts: Sequence[Attempt]) -> str:
    """What came of the files where none is faster by more than 3%."""
    fastest = max(attempts, key=lambda attempt: attempt.speedup or 0.0, default=None)
    if fastest is None or fastest.speedup is None:
        return "no part got faster"
    why = f": {fastest.reason}" if fastest.reason else ""
    return f"put together, the fastest file is at {fastest.speedup:.2f}x{why}"


def _closest(attempts: Sequence[Attempt], is_lean: bool) -> float | None:
    """The speed-up of what comes closest where nothing is delivered; 1 where there was nothing to try. What the
    compiler wrote counts where it leaves work out.

    The speed gate asks for more than a median: what it refused has not gained the 3%.
    """
    if not attempts:
        return 1.0
    counted = [attempt for attempt in attempts if attempt.parts or is_lean]
    correct = [attempt.speedup for attempt in counted if attempt.speedup is not None]
    return min(GAIN, max(correct)) if correct else None
