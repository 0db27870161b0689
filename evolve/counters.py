"""Counters for the programs that enter a grid: read in batches, because starting the profiler costs more than reading.

A program is placed at once by its provisional profile. When its counters arrive, the archive and its island move it to
the cell that they say.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Sequence

from db.measures import classify
from db.profile import Profile
from db.records import CONFIRM, Evaluation, Hardware, LatencyKind, Verdict
from evaluators.profiling.costs import LAUNCH_S, START_S
from evaluators.profiling.diagnosis import architecture_of, diagnose
from evolve.cluster import ActorDied
from evolve.config import CounterSettings
from evolve.events import CounterReport
from evolve.judging import ActorPool

POLL_S = 0.2
MAX_REFUSALS = 2  # batches in a row for which the profiler did not start: nobody can read them here
PAUSE_S = 60.0  # after a batch without any counters; twice as long after each further one
FIRST_GUESS_S = 1.5 * LAUNCH_S  # of a GPU, for one program: most of the suite launch one kernel, some two
LEAST_S = 0.05

N_FIRST, FIRST_PATIENCE_S = 2, 3.0
"""The first batch is small, early and in advance of its share: without it nobody knows what limits the programs that a
short run starts from."""

N_LAST, LAST_S, LAST_SHARE = 16, 30.0, 0.25
"""The last batch, for whoever wins: its programs, its seconds, and the part of the run that it may take at most."""

Recell = Callable[[list[tuple[Evaluation, Profile]]], Awaitable[list[Verdict]]]


class CounterQueue:
    """Collects programs that entered a cell and has their counters read, on whichever evaluator is free.

    Args:
        recell: takes evaluations with their profiles, moves them, and answers with their new verdicts. A profile that
                has no counters has a note that says why.
    """

    def __init__(
        self,
        evaluators: ActorPool,
        settings: CounterSettings,
        recell: Recell,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._evaluators = evaluators
        self._settings = settings
        self._recell = recell
        self._clock = clock
        self._began = clock()
        self._waiting: list[tuple[float, Evaluation]] = []
        self._seen: set[str] = set()  # ids of programs that were offered
        self._answered: set[str] = set()  # ids of those that were read, or cannot be
        self._spent_s = 0.0  # of GPUs
        self._program_s = FIRST_GUESS_S  # of a GPU, for one program beside the start, as far as is known
        self._n_failures = 0  # batches in a row without any counters
        self._n_refusals = 0  # of those, the last ones in a row that cost nothing
        self._not_before = 0.0  # by the clock
        self._n_taken = 0
        self._n_asked = 0
        self._n_read = 0
        self._why_not = ""

    @property
    def is_open(self) -> bool:
        """Whether counters are wanted and can be had, as far as is known."""
        return self._settings.enabled and self._n_refusals < MAX_REFUSALS

    @property
    def report(self) -> CounterReport:
        """What was read so far, and why not more."""
        return CounterReport(
            n_offered=len(self._seen),
            n_asked=self._n_asked,
            n_read=self._n_read,
            gpu_s=round(self._spent_s, 3),
            why_not="; ".join(filter(None, (self._why_not, self._why_not_asked()))),
        )

    def _why_not_asked(self) -> str:
        if not self._settings.enabled:
            return "counters.enabled is false"
        n_left = len(self._seen) - self._n_asked
        share = f"reading may take {self._settings.share:.0%} of the GPU's time (counters.share)"
        return f"{n_left} did not get their turn, {share}" if n_left and self.is_open else ""

    def offer(self, evaluation: Evaluation) -> None:
        """Takes a program that entered a cell, unless its counters are known, on their way, or not to be had."""
        verdict = evaluation.verdict
        if _lacks_counters(evaluation) and verdict.program_id not in self._seen:
            self._seen.add(verdict.program_id)
            if self.is_open:
                self._waiting.append((self._clock(), evaluation))

    async def run(self) -> None:
        """Reads whatever waits, batch after batch, until cancelled."""
        while self.is_open:
            if n := self._n_due():
                await self._read(self._take(n))
            else:
                await asyncio.sleep(POLL_S)

    async def read_last(self, wanted: Sequence[Evaluation]) -> None:
        """Reads those of `wanted` that lack counters, the first that fit into the last batch, whatever was spent."""
        now = self._clock()
        limit_s = min(LAST_S, LAST_SHARE * (now - self._began))
        n = min(N_LAST, max(int((limit_s - START_S) / self._program_s), 0))
        lacking = {e.verdict.program_id: e for e in wanted if _lacks_counters(e)}
        chosen = [e for name, e in lacking.items() if name not in self._answered][:n]
        if not chosen or not self.is_open or now < self._not_before:
            return
        self._seen.update(e.verdict.program_id for e in chosen)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_S):
                await self._read(chosen)

    def _n_due(self) -> int:
        """How many programs may be read now: as many as wait, as a batch takes, and as the share of the GPU allows."""
        if not self._waiting or self._clock() < self._not_before:
            return 0
        is_first = self._n_taken == 0
        allowed_s = self._settings.share * (self._clock() - self._began) * len(self._evaluators) - self._spent_s
        n_allowed = max(int((allowed_s - START_S) / self._program_s), N_FIRST if is_first else 0)
        n = min(len(self._waiting), self._settings.max_batch, n_allowed)
        waited_s = self._clock() - self._waiting[0][0]
        is_batch = n >= min(self._settings.batch, self._settings.max_batch)
        patience_s = min(self._settings.patience_s, FIRST_PATIENCE_S if is_first else math.inf)
        return n if is_batch or waited_s >= patience_s else 0

    def _take(self, n: int) -> list[Evaluation]:
        """The fastest of those that wait: what will be parents. The others wait on."""
        chosen = sorted(self._waiting, key=lambda item: _device_us(item[1]))[:n]
        self._waiting = [item for item in self._waiting if item not in chosen]
        self._n_taken += n
        return [evaluation for _, evaluation in chosen]

    async def _read(self, evaluations: Sequence[Evaluation]) -> None:
        candidates = [e.candidate for e in evaluations]
        provisional = [e.verdict.profile for e in evaluations]
        profiles: Sequence[Profile] = []
        with contextlib.suppress(ActorDied):  # what was being judged there is tried again by whoever asked
            profiles = await self._evaluators.call("profile", candidates, provisional)
        self._account(evaluations, profiles, n_read=sum(p.source == "ncu" for p in profiles))
        if answered := [(e, p) for e, p in zip(evaluations, profiles, strict=False) if p.source == "ncu" or p.note]:
            await self._recell(answered)

    def _account(self, evaluations: Sequence[Evaluation], profiles: Sequence[Profile], n_read: int) -> None:
        spent_s = sum(profile.gpu_s for profile in profiles)
        self._spent_s += spent_s
        if spent_s:  # nothing was lent where the profiler did not start: that says nothing of what programs cost
            self._program_s = max((spent_s - START_S) / len(evaluations), LEAST_S)
        self._n_asked += len(evaluations)
        self._answered.update(e.verdict.program_id for e in evaluations)
        self._n_read += n_read
        self._n_failures = 0 if n_read else self._n_failures + 1
        self._n_refusals = self._n_refusals + 1 if profiles and not spent_s and not n_read else 0
        self._not_before = 0.0 if n_read else self._clock() + PAUSE_S * 2 ** (self._n_failures - 1)
        why_not = (profile.note for profile in profiles if profile.source != "ncu" and profile.note)
        self._why_not = next(why_not, "the evaluator died" if not profiles else self._why_not)


def _lacks_counters(evaluation: Evaluation) -> bool:
    """Whether it was measured, for the first time, and nobody has read its counters."""
    verdict = evaluation.verdict
    is_measured = verdict.latency is not None and verdict.latency.kind is LatencyKind.MEASURED
    is_original = not verdict.duplicate_of and evaluation.candidate.lineage.operator != CONFIRM
    return is_measured and is_original and not is_counted(verdict)


def _device_us(evaluation: Evaluation) -> float:
    latency = evaluation.verdict.latency
    assert latency is not None
    return latency.device_us


def revised(evaluation: Evaluation, profile: Profile, hardware: Hardware) -> Verdict:
    """The verdict of a correct program with what counters said of it: profile, tier and bottleneck are new.

    Where they said nothing, its profile says why, in short.
    """
    verdict = evaluation.verdict
    if profile.source != "ncu":
        note = {"note": profile.note.split("; ")[0]}
        return verdict.model_copy(update={"profile": (verdict.profile or profile).model_copy(update=note)})
    tier = classify(profile.compute_sol_pct, profile.memory_sol_pct)
    architecture = architecture_of(hardware.compute_capability)
    source = evaluation.candidate.source
    bottleneck = diagnose(profile, source, verdict.captures, architecture, tier, verdict.precision)
    return verdict.model_copy(update={"profile": profile, "tier": tier, "bottleneck": bottleneck})


def as_counted(verdict: Verdict, earlier: Sequence[Verdict]) -> Verdict:
    """A second judgement with what counters said of the same work before: nobody reads them again, and its own profile
    is provisional. Equal profile and source have an equal diagnosis."""
    known = next((e for e in earlier if is_counted(e) and _work_of(e) == _work_of(verdict)), None)
    if known is None or not verdict.is_correct or is_counted(verdict):
        return verdict
    return verdict.model_copy(update={name: getattr(known, name) for name in ("profile", "tier", "bottleneck")})


def is_counted(verdict: Verdict) -> bool:
    """Whether its profile has hardware counters."""
    return verdict.profile is not None and verdict.profile.source == "ncu"


def _work_of(verdict: Verdict) -> str:
    return verdict.fingerprint or verdict.program_id
