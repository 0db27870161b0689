"""Where a run stands, counted from its verdicts."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence

from db.records import Evaluation, Gate, Verdict
from evolve.budget import AS_MANY_AS_FIT, Budget
from evolve.events import BestSoFar, GateCount, Progress
from islands.summary import IslandSummary

RATE_WINDOW_S = 30.0
N_LEADERS = 64  # the fastest programs: nobody asks for more, and a long run has hundreds of thousands


class ProgressMeter:
    """Counts verdicts as they come and answers with a `Progress`."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._recent: deque[float] = deque()
        self._funnel = {gate: GateCount() for gate in Gate}
        self._n_judged = self._n_duplicates = self._n_failed = 0
        self._leaders: dict[str, Evaluation] = {}  # correct, by program id; at most twice as many as are asked for
        self._confirmed: list[Evaluation] = []
        self.first: Evaluation | None = None  # what was judged first: a program that the run starts from

    @property
    def best(self) -> Evaluation | None:
        """The fastest correct program; once winners were judged again, the fastest that passed again."""
        return next(iter(self._confirmed or self.fastest()), None)

    def fastest(self) -> list[Evaluation]:
        """The fastest correct programs, fastest first; `N_LEADERS` of them at least, where there are so many."""
        return sorted(self._leaders.values(), key=_device_us)

    def confirm(self, evaluations: Sequence[Evaluation]) -> bool:
        """Take second judgements in; whether any program passed again. One that did not counts as correct no more."""
        for evaluation in evaluations:
            if not evaluation.verdict.is_correct:
                self._leaders.pop(evaluation.verdict.program_id, None)
        self._confirmed = sorted((e for e in evaluations if e.verdict.is_correct), key=_device_us)
        return bool(self._confirmed)

    def revise(self, verdicts: Sequence[Verdict]) -> None:
        """Later verdicts take the place of earlier ones of the same candidate."""
        for verdict in verdicts:
            known = self._leaders.get(verdict.program_id)
            if known is not None and known.verdict.candidate_id == verdict.candidate_id:
                self._leaders[verdict.program_id] = known.model_copy(update={"verdict": verdict})

    def count(self, evaluation: Evaluation, *, is_new: bool = True) -> None:
        """Count one verdict; `is_new=False` for those that a resumed run finds in the archive."""
        verdict = evaluation.verdict
        self.first = self.first or evaluation
        self._n_judged += 1
        self._n_duplicates += bool(verdict.duplicate_of)
        self._n_failed += not verdict.is_correct
        for result in verdict.gates if not verdict.duplicate_of else ():
            seen = self._funnel[result.gate]
            self._funnel[result.gate] = GateCount(asked=seen.asked + 1, passed=seen.passed + result.passed)
        if verdict.is_correct:
            self._follow(evaluation)
        if is_new:
            self._recent.append(time.monotonic())

    def _follow(self, evaluation: Evaluation) -> None:
        verdict = evaluation.verdict
        if verdict.duplicate_of:
            self._leaders.setdefault(verdict.program_id, evaluation)
        else:
            self._leaders[verdict.program_id] = evaluation
        if len(self._leaders) > 2 * N_LEADERS:
            self._leaders = {e.verdict.program_id: e for e in self.fastest()[:N_LEADERS]}

    def look(self, islands: Sequence[IslandSummary]) -> Progress:
        """The state now."""
        return Progress(
            n_judged=self._n_judged,
            n_duplicates=self._n_duplicates,
            n_failed=self._n_failed,
            rate_per_min=self._rate_per_min(),
            elapsed_s=self._budget.elapsed_s,
            time_left_s=self._budget.time_left_s,
            evaluations_left=self._evaluations_left(),
            best=_best_so_far(self.best),
            funnel={gate.value: count for gate, count in self._funnel.items() if count.asked},
            islands=tuple(islands),
        )

    def _evaluations_left(self) -> int | None:
        if self._budget.evaluations >= AS_MANY_AS_FIT:
            return None
        return max(0, self._budget.evaluations - self._n_judged)

    def _rate_per_min(self) -> float:
        now = time.monotonic()
        while self._recent and now - self._recent[0] > RATE_WINDOW_S:
            self._recent.popleft()
        span = min(RATE_WINDOW_S, max(self._budget.elapsed_s, 1e-3))
        return len(self._recent) / span * 60


def _device_us(evaluation: Evaluation) -> float:
    latency = evaluation.verdict.latency
    return math.inf if latency is None else latency.device_us


def _best_so_far(best: Evaluation | None) -> BestSoFar | None:
    if best is None or best.verdict.latency is None:
        return None
    lineage = best.candidate.lineage
    return BestSoFar(
        program_id=best.candidate.program_id,
        latency_us=best.verdict.latency.device_us,
        speedup=best.verdict.latency.speedup,
        technique=lineage.technique or lineage.operator,
        island=best.candidate.island,
    )
