"""What to try when a model that was put together is refused: without the part that hurts, then with fewer winners."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from evolve.models.records import STITCH, Attempt, PartResult

N_RETRIES = 2  # each without the part that the reason points to
MOST_ATTEMPTS = 8

Attempting = Callable[[Sequence[PartResult]], Attempt]


def deliver(winners: Sequence[PartResult], attempt: Attempting, *, is_lean: bool = False) -> list[Attempt]:
    """Attempts in their order. The last one is the delivered file, if it is accepted; else none is.

    Args:
        winners: of which no two share a step.
        attempt: puts some of them into the model and judges it.
        is_lean: the model does without needless work, which may be a gain without any winner.
    """
    trials = _Trials(winners, is_lean)
    while (chosen := trials.ask()) is not None:
        trials.tell(attempt(chosen))
    return trials.attempts


def suspect(attempt: Attempt, chosen: Sequence[PartResult]) -> PartResult:
    """The part that hurts: the one that the reason names, else where exactness was missed the least exact, or one of
    which that is not known, else the one with the least to lose."""
    named = [part for part in chosen if f"{part.name}_" in attempt.reason or part.name in attempt.reason.split()]
    if named:
        return named[0]
    if attempt.is_correct:
        return min(chosen, key=lambda part: part.gain)
    inexact = max(chosen, key=lambda part: part.found.error_ratio or 0.0)
    if (inexact.found.error_ratio or 0.0) > 1:
        return inexact
    unknown = [part for part in chosen if part.found.error_ratio is None]  # its kernel is its own reference, mostly
    return min(unknown or chosen, key=lambda part: part.gain)


class _Trials:
    """What is tried next, as long as the last attempt was refused; nothing is tried twice."""

    def __init__(self, winners: Sequence[PartResult], is_lean: bool) -> None:
        self.attempts: list[Attempt] = []
        self._is_lean = is_lean
        self._proposals = self._propose(list(winners))

    def ask(self) -> list[PartResult] | None:
        """The next winners to put together; None when it is over."""
        tried = {attempt.parts for attempt in self.attempts}
        if self._is_over():
            return None
        if self._is_lean and () not in tried and len(self.attempts) == MOST_ATTEMPTS - 1:
            return []  # the last chance of what may be a gain by itself
        return next((p for p in self._proposals if tuple(part.name for part in p) not in tried), None)

    def tell(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)

    def _is_over(self) -> bool:
        if not self.attempts:
            return False
        last = self.attempts[-1]
        return last.is_accepted or last.is_compilers_fault or len(self.attempts) >= MOST_ATTEMPTS

    def _propose(self, winners: list[PartResult]) -> Iterator[list[PartResult]]:
        if not winners:
            if self._is_lean:
                yield []
            return
        yield winners
        refused, chosen = self.attempts[-1], winners
        if not refused.is_correct and refused.refused_by != STITCH:
            yield []  # is it the winners at all?
        for _ in range(min(N_RETRIES, len(winners) - 1)):
            hurts = suspect(refused, chosen)
            chosen = [part for part in chosen if part is not hurts]
            yield chosen
            refused = self.attempts[-1]
        yield from _smaller(winners)
        if self._is_lean:
            yield []


def _smaller(winners: Sequence[PartResult]) -> Iterator[list[PartResult]]:
    """Subsets, each without one more of those that gain least; in the end each of the others alone."""
    by_gain = sorted(winners, key=lambda part: -part.gain)
    for n in range(len(by_gain) - 1, 0, -1):
        yield sorted(by_gain[:n], key=lambda part: part.first)
    yield from ([part] for part in by_gain[1:])
