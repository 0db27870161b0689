"""What to try when a model that was put together is refused: another program of the part that hurts, then without that
part, then fewer winners."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from evolve.models.records import STITCH, Attempt, PartResult

N_RETRIES = 2  # each about the part that the reason points to: another program of it, then without it
MOST_ATTEMPTS = 8
_REASON = 300  # characters of one in a note

Attempting = Callable[[Sequence[PartResult], str], Attempt]


def deliver(winners: Sequence[PartResult], attempt: Attempting, *, is_lean: bool = False) -> list[Attempt]:
    """Attempts in their order. The last one is the delivered file, if it is accepted; else none is.

    Args:
        winners: of which no two share a step.
        attempt: puts some of them into the model and judges it; it is told why these.
        is_lean: the model does without needless work, which may be a gain without any winner.
    """
    trials = _Trials(winners, is_lean)
    while (proposal := trials.ask()) is not None:
        trials.tell(attempt(proposal.parts, proposal.note))
    return trials.attempts


def suspect(attempt: Attempt, chosen: Sequence[PartResult]) -> PartResult:
    """The part that hurts: the one that the reason names, else where exactness was missed the least exact, or one of
    which that is not known, else the one with the least to lose."""
    if (named := _named(attempt, chosen)) is not None:
        return named
    if attempt.is_correct:
        return min(chosen, key=lambda part: part.gain)
    inexact = max(chosen, key=lambda part: part.found.error_ratio or 0.0)
    if (inexact.found.error_ratio or 0.0) > 1:
        return inexact
    unknown = [part for part in chosen if part.found.error_ratio is None]  # its kernel is its own reference, mostly
    return min(unknown or chosen, key=lambda part: part.gain)


def replaced(part: PartResult, refused: Attempt) -> PartResult | None:
    """The part with another of its programs: the most exact one where a wrong or inexact answer was refused, else the
    next fastest. None where there is none, or none that is as exact as the program that was refused."""
    others = part.found.runners_up
    if not others:
        return None
    if not _is_of_values(refused):
        return part.with_program(max(others, key=lambda other: other.speedup).program_id)
    exact = min(others, key=lambda other: (_ratio(other.error_ratio), -other.speedup))
    is_worse = exact.error_ratio is not None and exact.error_ratio > _ratio(part.found.error_ratio)
    return None if is_worse else part.with_program(exact.program_id)


class _Proposal(NamedTuple):
    """Winners to put together, and why these."""

    parts: list[PartResult]
    note: str = ""

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        return tuple((part.name, part.found.program_id) for part in self.parts)


class _Trials:
    """What is tried next, as long as the last attempt was refused; nothing is tried twice."""

    def __init__(self, winners: Sequence[PartResult], is_lean: bool) -> None:
        self.attempts: list[Attempt] = []
        self._is_lean = is_lean
        self._tried: set[tuple[tuple[str, str], ...]] = set()
        self._proposals = self._propose(list(winners))

    def ask(self) -> _Proposal | None:
        """The next winners to put together; None when it is over."""
        proposal = self._next()
        if proposal is not None:
            self._tried.add(proposal.key)
        return proposal

    def tell(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)

    def _next(self) -> _Proposal | None:
        if self._is_over():
            return None
        if self._is_lean and () not in self._tried and len(self.attempts) == MOST_ATTEMPTS - 1:
            return _Proposal([], "no winner: what leaves work out may be a gain by itself")
        return next((p for p in self._proposals if p.key not in self._tried), None)

    def _is_over(self) -> bool:
        if not self.attempts:
            return False
        last = self.attempts[-1]
        return last.is_accepted or last.is_compilers_fault or len(self.attempts) >= MOST_ATTEMPTS

    def _propose(self, winners: list[PartResult]) -> Iterator[_Proposal]:
        if not winners:
            if self._is_lean:
                yield _Proposal([])
            return
        yield _Proposal(winners)
        refused = self.attempts[-1]
        if _is_of_values(refused):
            yield _Proposal([], f"no winner, to see whether they are to blame: {_said(refused)}")
        yield from self._retries(refused, winners)
        yield from _smaller(winners)
        if self._is_lean:
            yield _Proposal([], "no winner: what leaves work out may be a gain by itself")

    def _retries(self, refused: Attempt, chosen: list[PartResult]) -> Iterator[_Proposal]:
        """First another program of the part that hurts, then without it, or without the one that the new reason
        names."""
        hurts = suspect(refused, chosen)
        n_left = N_RETRIES
        if (other := replaced(hurts, refused)) is not None:
            chosen = [other if part is hurts else part for part in chosen]
            yield _Proposal(chosen, f"another program of {hurts.name} ({_told(other)}): {_said(refused)}")
            refused, n_left = self.attempts[-1], n_left - 1
            hurts = _named(refused, chosen) or other
        for _ in range(min(n_left, len(chosen) - 1)):
            chosen = [part for part in chosen if part is not hurts]
            yield _Proposal(chosen, f"without {hurts.name}: {_said(refused)}")
            refused = self.attempts[-1]
            hurts = suspect(refused, chosen)


def _smaller(winners: Sequence[PartResult]) -> Iterator[_Proposal]:
    """Subsets, each without one more of those that gain least; in the end each of the others alone."""
    by_gain = sorted(winners, key=lambda part: -part.gain)
    for n in range(len(by_gain) - 1, 0, -1):
        yield _Proposal(sorted(by_gain[:n], key=lambda part: part.first), "the largest gains alone")
    yield from (_Proposal([part], "a winner by itself") for part in by_gain[1:])


def _named(attempt: Attempt, chosen: Sequence[PartResult]) -> PartResult | None:
    """The part that a reason speaks of."""
    named = [part for part in chosen if f"{part.name}_" in attempt.reason or part.name in attempt.reason.split()]
    return named[0] if named else None


def _is_of_values(refused: Attempt) -> bool:
    """Whether what the file answers was refused, and not how fast it is or that it cannot be written."""
    return not refused.is_correct and refused.refused_by != STITCH


def _ratio(error_ratio: float | None) -> float:
    return math.inf if error_ratio is None else error_ratio


def _said(refused: Attempt) -> str:
    """What a refusal said, for a note."""
    gate = refused.refused_by or "speed"
    return f"refused by {gate}: {refused.reason[:_REASON]}" if refused.reason else f"refused by {gate}"


def _told(part: PartResult) -> str:
    ratio = part.found.error_ratio
    exactness = "" if ratio is None else f", {ratio:.3g} times the error of the reference"
    return f"{part.found.program_id[:12]}, {part.found.speedup or 1.0:.2f}x{exactness}"
