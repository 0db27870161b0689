"""Which programs have their counters read, when, and what becomes of those that nobody can read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Literal

import pytest
import ray
from support.runs import make_problem, make_run, one_evaluation

from db.measures import Tier
from db.profile import Profile
from db.records import CONFIRM, Candidate, Evaluation, LatencyKind, Verdict
from evaluators.profiling.costs import START_S
from evolve.cli.summary import counted
from evolve.config import CounterSettings
from evolve.counters import FIRST_PATIENCE_S, LAST_S, MAX_REFUSALS, N_FIRST, PAUSE_S, CounterQueue, as_counted, revised
from evolve.events import CounterReport
from evolve.judging import ActorPool

PROBLEM = make_problem()
RUN = make_run(PROBLEM)
GPU_S = 2.0  # that a reader takes for each program, beside the start of its process
WAITING = "1 did not get their turn, reading may take 10% of the GPU's time (counters.share)"
LONG_S = 1000.0  # after this any share allows a few programs


@ray.remote(num_cpus=0)
class Reader:
    """An evaluator that only reads counters, or cannot."""

    def __init__(self, source: Literal["ncu", "compiled"] = "ncu", gpu_s: float = GPU_S) -> None:
        """`gpu_s` 0: the profiler does not even start."""
        self._source = source
        self._gpu_s = gpu_s
        self._batches: list[list[str]] = []

    def profile(self, candidates: Sequence[Candidate], provisional: Sequence[Profile]) -> list[Profile]:
        assert len(provisional) == len(candidates)
        self._batches.append([c.source for c in candidates])
        note = "" if self._source == "ncu" else "nobody may read them"
        gpu_s = self._gpu_s and self._gpu_s + START_S / len(candidates)
        profile = Profile(source=self._source, memory_sol_pct=50.0, note=note, gpu_s=gpu_s)
        return [profile] * len(candidates)

    def batches(self) -> list[list[str]]:
        return self._batches


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Stage:
    """A queue before one reader; `recelled` has the ids of what was read."""

    def __init__(self, source: Literal["ncu", "compiled"] = "ncu", gpu_s: float = GPU_S, **settings: object) -> None:
        self.reader = Reader.remote(source, gpu_s)  # type: ignore[attr-defined]
        self.clock = Clock()
        self.recelled: list[str] = []
        wanted = CounterSettings.model_validate({"batch": 2, "max_batch": 3, "patience_s": 10.0, **settings})
        self.queue = CounterQueue(ActorPool([self.reader]), wanted, self._recell, clock=self.clock)
        self.clock.now = LONG_S

    async def _recell(self, read: list[tuple[Evaluation, Profile]]) -> list[Verdict]:
        self.recelled += [e.candidate.source for e, _ in read]
        return [e.verdict for e, _ in read]

    def wait(self, n_batches: int) -> list[list[str]]:
        """Lets the queue run until so many batches were read in all, and half a second more; which they were."""

        async def run() -> None:
            task = asyncio.create_task(self.queue.run())
            end = time.monotonic() + 30
            while time.monotonic() < end and len(await self.reader.batches.remote()) < n_batches:
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.5)
            task.cancel()

        asyncio.run(run())
        return list(ray.get(self.reader.batches.remote()))


def made(n: int, us: float | None, **options: object) -> Evaluation:
    return one_evaluation(PROBLEM, RUN, n, us, **options)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _ray(ray_session: None) -> None:
    """Readers are actors."""


def test_programs_are_read_in_batches_the_fastest_first() -> None:
    stage = Stage()
    for n, us in enumerate((90.0, 70.0, 80.0, 60.0)):
        stage.queue.offer(made(n, us))
    assert stage.wait(1) == [["VALUE = 3", "VALUE = 1", "VALUE = 2"]]
    assert stage.recelled == ["VALUE = 3", "VALUE = 1", "VALUE = 2"]
    stage.clock.now += 11.0  # the last one has waited long enough
    assert stage.wait(2)[-1] == ["VALUE = 0"]


def test_one_program_waits_for_others() -> None:
    stage = Stage()
    stage.queue.offer(made(0, 90.0))
    assert stage.wait(0) == []


def test_only_measured_originals_are_read_and_each_once() -> None:
    stage = Stage(batch=1)
    seed = made(0, 90.0)
    modelled = made(1, 80.0)
    assert modelled.verdict.latency is not None
    latency = modelled.verdict.latency.model_copy(update={"kind": LatencyKind.MODELLED})
    modelled = modelled.model_copy(update={"verdict": modelled.verdict.model_copy(update={"latency": latency})})
    again = made(2, 90.0, source="VALUE = 0", parents=[seed], operator=CONFIRM)
    for evaluation in (seed, seed, modelled, made(3, 85.0, duplicate_of="x"), made(4, None), again):
        stage.queue.offer(evaluation)
    assert stage.wait(1) == [["VALUE = 0"]]


def test_a_profiler_takes_no_more_than_its_share_of_the_gpu() -> None:
    stage = Stage(batch=1, max_batch=8, share=0.1)
    stage.clock.now = 0.0
    stage.queue.offer(made(3, 95.0))
    assert stage.wait(1) == [["VALUE = 3"]]  # in advance
    for n, us in enumerate((90.0, 80.0, 70.0)):
        stage.queue.offer(made(n, us))
    stage.clock.now = 65.0  # 6.5 s of the GPU, of which 3.5 are spent, and the next program costs 3.5
    assert len(stage.wait(1)) == 1
    stage.clock.now = 95.0  # two programs cost 5.5
    assert stage.wait(2) == [["VALUE = 3"], ["VALUE = 2", "VALUE = 1"]]
    assert stage.queue.report == CounterReport(n_offered=4, n_asked=3, n_read=3, gpu_s=9.0, why_not=WAITING)
    assert counted(stage.queue.report) == f"3 of 4 programs read; why not more: {WAITING}"


def test_the_first_batch_is_early_and_small() -> None:
    stage = Stage(batch=8, max_batch=8, share=0.001)
    for n in range(N_FIRST + 1):
        stage.queue.offer(made(n, 90.0 - n))
    assert stage.wait(0) == []
    stage.clock.now += FIRST_PATIENCE_S
    assert [len(batch) for batch in stage.wait(1)] == [N_FIRST]
    stage.clock.now += FIRST_PATIENCE_S
    assert len(stage.wait(1)) == 1


def test_where_nobody_can_read_counters_it_is_not_tried_for_ever() -> None:
    stage = Stage(source="compiled", gpu_s=0.0, batch=1, share=1.0)
    for n in range(MAX_REFUSALS):
        stage.queue.offer(made(n, 90.0))
        stage.wait(n + 1)
        stage.clock.now += LONG_S
    assert not stage.queue.is_open
    assert stage.queue.report.n_read == 0 and stage.queue.report.why_not == "nobody may read them"
    stage.queue.offer(made(9, 50.0))
    assert len(stage.wait(0)) == MAX_REFUSALS
    assert counted(stage.queue.report) == f"0 of {MAX_REFUSALS + 1} programs read; why not more: nobody may read them"


def test_after_batches_without_counters_it_pauses_longer_each_time() -> None:
    stage = Stage(source="compiled", batch=1, max_batch=1, share=1.0)
    for n in range(4):
        stage.queue.offer(made(n, 90.0))
    for n_read, pause_s in enumerate((PAUSE_S, 2 * PAUSE_S), start=1):
        assert len(stage.wait(n_read)) == n_read
        stage.clock.now += pause_s - 1.0
        assert len(stage.wait(0)) == n_read
        stage.clock.now += 2.0
    assert len(stage.wait(3)) == 3 and stage.queue.is_open
    assert "; 1 did not get their turn" in stage.queue.report.why_not
    assert stage.recelled == [f"VALUE = {n}" for n in range(3)]  # the archive is told why


def test_counters_can_be_switched_off() -> None:
    stage = Stage(batch=1, enabled=False)
    stage.queue.offer(made(0, 90.0))
    assert stage.wait(0) == []
    assert counted(stage.queue.report) == "0 of 1 program read; why not more: counters.enabled is false"


def test_where_counters_said_nothing_the_profile_says_why_and_nothing_else_changes() -> None:
    known = Profile(source="compiled", memory_sol_pct=70.0)
    evaluation = made(0, 90.0)
    evaluation = evaluation.model_copy(update={"verdict": evaluation.verdict.model_copy(update={"profile": known})})
    verdict = revised(evaluation, Profile(source="compiled", note="nobody may; do that", gpu_s=2.0), RUN.hardware)
    profile = known.model_copy(update={"note": "nobody may"})
    assert verdict == evaluation.verdict.model_copy(update={"profile": profile})


def test_counters_revise_profile_tier_and_bottleneck_and_nothing_else() -> None:
    evaluation = made(0, 90.0)
    profile = Profile(source="ncu", memory_sol_pct=91.0, dram_pct=91.0, duration_us=90.0)
    verdict = revised(evaluation, profile, RUN.hardware)
    assert verdict.tier is Tier.NEAR_OPTIMAL and verdict.profile is profile
    assert verdict.bottleneck is not None and verdict.bottleneck.source == "ncu"
    assert verdict.bottleneck.state.architecture == "sm_90"
    changed = {
        name for name in type(verdict).model_fields if getattr(verdict, name) != getattr(evaluation.verdict, name)
    }
    assert changed == {"profile", "tier", "bottleneck"}


def test_a_second_judgement_takes_over_the_counters_of_equal_work_only() -> None:
    first = made(0, 90.0)
    counted = revised(first, Profile(source="ncu", memory_sol_pct=91.0, duration_us=90.0), RUN.hardware)
    again = first.verdict.model_copy(update={"candidate_id": "again"})
    assert as_counted(again, [counted]) == counted.model_copy(update={"candidate_id": "again"})
    assert as_counted(again, [first.verdict]) == again
    assert as_counted(made(1, 80.0).verdict, [counted]) == made(1, 80.0).verdict
    alike = [v.model_copy(update={"fingerprint": "work"}) for v in (counted, made(1, 90.0).verdict)]
    assert as_counted(alike[1], alike[:1]).profile == counted.profile
    failed = made(0, None).verdict.model_copy(update={"program_id": counted.program_id, "fingerprint": ""})
    assert as_counted(failed, [counted]) == failed


def test_the_last_batch_takes_the_first_that_fit_and_asks_nobody_twice() -> None:
    stage = Stage(batch=1, max_batch=1, share=0.001)
    wanted = [made(n, 90.0 + n) for n in range(40)]
    stage.queue.offer(wanted[0])
    stage.wait(1)
    stage.clock.now = LAST_S  # of which the batch may take a quarter
    asyncio.run(stage.queue.read_last(wanted))
    assert stage.wait(0)[1:] == [[f"VALUE = {n}" for n in (1, 2, 3)]]  # 7.5 s: the start, and 2 s each
    asyncio.run(stage.queue.read_last(wanted[:4]))
    assert len(stage.wait(0)) == 2
