"""Searches and verdicts that a test chooses, of models that were taken apart on an H200. The stitching is real."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from db.records import Problem
from evaluators.decomposition.records import Decomposition
from evolve.models.budget import Allotment
from evolve.models.improve import Tools, improve
from evolve.models.records import (
    Attempt,
    Found,
    ModelEvent,
    ModelRun,
    PartResult,
)
from tests.support.decompositions import decomposition_of

GROUP, FIRST, SECOND, LAYOUT = "part_20_28", "part_20_20", "part_28_28", "part_9_9"  # of conv_epilogue


class Bench:
    """Searches that find what is given by name, and a judge that knows the speed-up of every set of parts."""

    def __init__(self, model: str, speedups: dict[str, float], verdicts: Callable[[set[str]], Attempt]) -> None:
        self.decomposition = decomposition_of(model)
        self._speedups = speedups
        self._verdicts = verdicts
        self.searched: list[tuple[str, Allotment]] = []
        self.interrupts_after = ""
        self.events: list[ModelEvent] = []

    def take_apart(self, problem: Problem) -> Decomposition:
        return self.decomposition

    def search(self, name: str, problem: Problem, allotment: Allotment) -> Found:
        self.searched.append((name, allotment))
        source = problem.seeds[0] if problem.seeds else "class ModelNew: pass"
        return Found(
            source=source,
            program_id=name,
            speedup=self._speedups.get(name),
            n_judged=allotment.evaluations,
            elapsed_s=1.0,
            is_interrupted=name == self.interrupts_after,
        )

    def judge(self, source: str, parts: Sequence[PartResult]) -> Attempt:
        names = {part.name for part in parts}
        assert all(f"{name}_" in source for name in names)  # the winner's definitions are in the file
        verdict = self._verdicts(names)
        return verdict.model_copy(update={"parts": tuple(part.name for part in parts), "source": source})

    def run(self, evaluations: int = 200, *, tries_whole: bool = False) -> ModelRun:
        tools = Tools(self.take_apart, self.search, self.judge)
        return improve(
            self.decomposition.problem,
            tools,
            Allotment(evaluations, 60.0),
            tries_whole=tries_whole,
            on_event=self.events.append,
        )


def accepted(speedup: float) -> Attempt:
    return Attempt(parts=(), program_id="p", is_correct=True, replaces_baseline=True, speedup=speedup)


def too_slow(speedup: float, reason: str = "not faster than compile beyond the noise") -> Attempt:
    return Attempt(parts=(), program_id="p", is_correct=True, speedup=speedup, refused_by="speed", reason=reason)


def wrong(reason: str = "error 1 against float64 exceeds every bound", gate: str = "model") -> Attempt:
    return Attempt(parts=(), program_id="p", refused_by=gate, reason=reason)


def always(attempt: Attempt) -> Callable[[set[str]], Attempt]:
    return lambda _: attempt


def part(
    name: str, first: int, last: int, share: float, speedup: float | None, ratio: float | None = 0.5
) -> PartResult:
    found = Found(source="x", program_id=name, speedup=speedup, error_ratio=ratio)
    return PartResult(name=name, first=first, last=last, kernels=("k",), share=share, found=found)
