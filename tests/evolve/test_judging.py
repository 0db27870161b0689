"""Judging on real actors: equal work is judged once, a dead actor costs one more trial, a broken machine is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import ray
from support.workers import (
    BornDead,
    ForeignEvaluator,
    MadeUpEvaluator,
    MadeUpPreparer,
    calls,
    make_candidate,
    make_report,
    make_verdict,
)

from db.actor import ArchiveActor
from db.errors import ClusterError, DeviceError
from db.hashing import content_hash
from db.records import SEED, Candidate, Evaluation, LatencyKind, Lineage, Outcome, PrecisionClass, Verdict
from evolve.judging import MAX_CRASHES, ActorPool, JudgePool
from evolve.known import KnownVerdicts
from evolve.preranking import ONE_IN


class Actors(NamedTuple):
    preparer: Any
    evaluator: Any


@pytest.fixture(scope="module")
def actors(ray_session: None) -> Iterator[Actors]:
    started = Actors(MadeUpPreparer.remote(), MadeUpEvaluator.remote())
    yield started
    for actor in started:
        ray.kill(actor)


@pytest.fixture
def archive(ray_session: None, tmp_path: Path) -> Iterator[Any]:
    actor = ArchiveActor.remote(str(tmp_path / "archive.duckdb"))
    yield actor
    ray.get(actor.close.remote(), timeout=60)
    ray.kill(actor)


@pytest.fixture
def pool(actors: Actors, archive: Any) -> JudgePool:
    return make_pool([actors.preparer], [actors.evaluator], archive)


def make_pool(preparers: list[Any], evaluators: list[Any], archive: Any, pre_rank: float = 0.0) -> JudgePool:
    return JudgePool(
        preparers=ActorPool(preparers),
        evaluators=ActorPool(evaluators),
        archive=archive,
        report=make_report(),
        precision=PrecisionClass.REFERENCE,
        pre_rank=pre_rank,
    )


def judge(pool: JudgePool, *candidates: Candidate) -> list[Verdict]:
    return asyncio.run(asyncio.wait_for(pool.judge(candidates), 60))


def evaluated(log: Path) -> list[str]:
    return [call.split()[1] for call in calls(log) if call.startswith("evaluate")]


def test_verdicts_come_in_the_order_of_the_candidates(pool: JudgePool, tmp_path: Path) -> None:
    slow = make_candidate(1, tmp_path, work="A", us=80.0, takes=0.3)
    quick = make_candidate(2, tmp_path, work="B", us=70.0)
    verdicts = judge(pool, slow, quick)
    assert [(v.candidate_id, v.latency.device_us) for v in verdicts if v.latency] == [
        (slow.candidate_id, 80.0),
        (quick.candidate_id, 70.0),
    ]
    assert not any(v.duplicate_of for v in verdicts)


def test_a_program_that_is_known_is_not_judged_again(pool: JudgePool, tmp_path: Path) -> None:
    first = make_candidate(1, tmp_path, work="A")
    again = first.model_copy(update={"candidate_id": "run-1-000001", "island": 1})
    (verdict,), (repeated,) = judge(pool, first), judge(pool, again)
    assert calls(tmp_path) == ["prepare run-0-000001", "evaluate run-0-000001"]
    assert repeated == verdict.model_copy(
        update={"candidate_id": "run-1-000001", "duplicate_of": first.program_id, "seconds": {}}
    )


def test_equal_work_in_progress_is_waited_for(pool: JudgePool, tmp_path: Path) -> None:
    """Two programs that compile to the same, and one of them twice, all under way at once."""
    one = make_candidate(1, tmp_path, work="A", takes=0.3)
    other = make_candidate(2, tmp_path, work="A", takes=0.3, us=90.5)
    same = one.model_copy(update={"candidate_id": "run-1-000001"})
    verdicts = judge(pool, one, other, same)
    assert len(evaluated(tmp_path)) == 1
    assert sorted(call for call in calls(tmp_path) if call.startswith("prepare")) == [
        "prepare run-0-000001",
        "prepare run-0-000002",
    ]
    assert [v.candidate_id for v in verdicts] == [c.candidate_id for c in (one, other, same)]
    assert [v.program_id for v in verdicts] == [c.program_id for c in (one, other, same)]
    judged = {v.duplicate_of for v in verdicts if v.duplicate_of}
    assert sum(not v.duplicate_of for v in verdicts) == 1 and judged <= {one.program_id, other.program_id}


@pytest.mark.parametrize(("versions", "n_evaluated"), [({"judge": "1"}, 0), ({"judge": "0"}, 1)])
def test_equal_work_of_an_earlier_run_counts_under_the_same_versions(
    pool: JudgePool, archive: Any, tmp_path: Path, versions: dict[str, str], n_evaluated: int
) -> None:
    earlier = make_candidate(1, tmp_path, work="A", us=55.0).model_copy(update={"run_id": "earlier"})
    kept = Evaluation(candidate=earlier, verdict=make_verdict(earlier, versions=versions))
    ray.get(archive.insert.remote([kept]), timeout=60)
    (verdict,) = judge(pool, make_candidate(2, tmp_path, work="A", us=66.0))
    assert len(evaluated(tmp_path)) == n_evaluated
    assert verdict.latency is not None and verdict.latency.device_us == (66.0 if n_evaluated else 55.0)
    assert verdict.duplicate_of == ("" if n_evaluated else earlier.program_id)


def test_what_a_run_starts_from_is_judged_again_in_every_run(pool: JudgePool, archive: Any, tmp_path: Path) -> None:
    earlier = make_candidate(1, tmp_path, work="A", us=55.0).model_copy(update={"run_id": "earlier"})
    kept = Evaluation(candidate=earlier, verdict=make_verdict(earlier))
    ray.get(archive.insert.remote([kept]), timeout=60)
    seed = make_candidate(2, tmp_path, work="A", us=66.0)
    seed = seed.model_copy(update={"lineage": seed.lineage.model_copy(update={"operator": SEED})})
    (verdict,) = judge(pool, seed)
    assert verdict.duplicate_of == "" and len(evaluated(tmp_path)) == 1


def test_what_a_model_wrote_from_scratch_is_judged_itself(pool: JudgePool, archive: Any, tmp_path: Path) -> None:
    """Equal work of another run was held to less; a model's edit of a program that was right may take its verdict."""
    earlier = make_candidate(1, tmp_path, work="A", us=55.0).model_copy(update={"run_id": "earlier"})
    ray.get(archive.insert.remote([Evaluation(candidate=earlier, verdict=make_verdict(earlier))]), timeout=60)
    edit, first = make_candidate(2, tmp_path, work="A", us=66.0), make_candidate(3, tmp_path, work="A", us=77.0)
    edit = edit.model_copy(update={"lineage": Lineage(operator="mutate", model="m", parents=("1",))})
    first = first.model_copy(update={"lineage": Lineage(operator="synthesize", model="m")})
    assert judge(pool, edit)[0].duplicate_of == earlier.program_id
    assert judge(pool, first)[0].duplicate_of == "" and evaluated(tmp_path) == [first.candidate_id]


def test_a_verdict_beside_another_modelled_baseline_is_none_of_this_run(
    pool: JudgePool, archive: Any, tmp_path: Path
) -> None:
    earlier = make_candidate(1, tmp_path, work="A", us=55.0)
    verdict = make_verdict(earlier)
    assert verdict.latency is not None
    for baseline_us, is_known in ((99.0, False), (make_report().baseline.device_us, True)):
        latency = verdict.latency.model_copy(update={"kind": LatencyKind.MODELLED, "baseline_us": baseline_us})
        assert pool._has_this_baseline(verdict.model_copy(update={"latency": latency})) is is_known
    measured = verdict.latency.model_copy(update={"baseline_us": 99.0})
    assert pool._has_this_baseline(verdict.model_copy(update={"latency": measured}))


def test_what_another_run_refused_is_judged_again(pool: JudgePool, archive: Any, tmp_path: Path) -> None:
    earlier = make_candidate(1, tmp_path, work="A").model_copy(update={"run_id": "earlier"})
    kept = Evaluation(candidate=earlier, verdict=make_verdict(earlier, "out of memory on the GPU"))
    ray.get(archive.insert.remote([kept]), timeout=60)
    (verdict,) = judge(pool, make_candidate(2, tmp_path, work="A"))
    assert verdict.is_correct and len(evaluated(tmp_path)) == 1


def test_a_resumed_run_remembers_what_it_judged(pool: JudgePool, tmp_path: Path) -> None:
    known, stale = make_candidate(1, tmp_path, work="A"), make_candidate(2, tmp_path, work="B")
    pool.remember([make_verdict(known), make_verdict(stale, versions={"judge": "0"})])
    judge(pool, known, stale)
    assert evaluated(tmp_path) == [stale.candidate_id]


def test_equal_work_is_judged_once_however_long_the_run(
    actors: Actors, archive: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is so long ago that only the archive knows it: the same program, and the same work written otherwise."""
    monkeypatch.setattr(KnownVerdicts.__init__, "__defaults__", (2,))
    pool = make_pool([actors.preparer], [actors.evaluator], archive)
    candidates = [make_candidate(n, tmp_path, work=f"W{n}", us=50.0 + n) for n in range(4)]
    for candidate in candidates:
        (verdict,) = judge(pool, candidate)
        ray.get(archive.insert.remote([Evaluation(candidate=candidate, verdict=verdict)]), timeout=60)
    again = [c.model_copy(update={"candidate_id": f"run-1-{n:06d}"}) for n, c in enumerate(candidates)]
    rewritten = [make_candidate(10 + n, tmp_path, work=f"W{n}", us=99.0) for n in range(4)]
    verdicts = judge(pool, *again, *rewritten)
    assert [v.latency.device_us for v in verdicts if v.latency] == [50.0, 51.0, 52.0, 53.0] * 2
    assert len(evaluated(tmp_path)) == 4


def test_what_preparation_refuses_needs_no_evaluator(pool: JudgePool, tmp_path: Path) -> None:
    (verdict,) = judge(pool, make_candidate(1, tmp_path, refused="it calls torch.softmax"))
    assert verdict.reason == "it calls torch.softmax" and not evaluated(tmp_path)


def test_a_second_look_is_a_new_judgement(pool: JudgePool, tmp_path: Path) -> None:
    first = make_candidate(1, tmp_path, work="A")
    judge(pool, first)
    second = first.model_copy(update={"candidate_id": "run-confirm-1"})
    (verdict,) = asyncio.run(asyncio.wait_for(pool.judge_again([second]), 60))
    assert evaluated(tmp_path) == ["run-0-000001", "run-confirm-1"] and not verdict.duplicate_of


@pytest.mark.parametrize("victim", ["actor", "zygote"])
def test_a_process_that_dies_costs_one_more_trial(victim: str, pool: JudgePool, tmp_path: Path) -> None:
    (verdict,) = judge(pool, make_candidate(1, tmp_path, work="A", kills=1, victim=victim))
    assert verdict.is_correct and evaluated(tmp_path) == ["run-0-000001"] * 2


@pytest.mark.parametrize("victim", ["actor", "zygote"])
def test_a_candidate_that_kills_twice_is_a_crash_and_the_next_is_judged(
    victim: str, pool: JudgePool, tmp_path: Path
) -> None:
    deadly = make_candidate(1, tmp_path, work="A", kills=2, victim=victim)
    harmless = make_candidate(2, tmp_path, work="B")
    (crash,), (verdict,) = judge(pool, deadly), judge(pool, harmless)
    assert crash.outcome is Outcome.FAILED and crash.reason.startswith("the judging process died twice: ")
    assert crash.program_id == deadly.program_id and crash.versions == make_report().versions
    assert verdict.is_correct


def test_a_dead_actor_does_not_draw_every_call(actors: Actors, archive: Any, tmp_path: Path) -> None:
    dead = MadeUpEvaluator.remote()
    ray.kill(dead, no_restart=True)
    pool = make_pool([actors.preparer], [dead, actors.evaluator], archive)
    verdicts = judge(pool, *(make_candidate(n, tmp_path, work=f"W{n}", takes=0.05) for n in range(12)))
    assert all(v.is_correct for v in verdicts), [v.reason for v in verdicts if v.reason]


def test_a_machine_on_which_everything_dies_is_told(actors: Actors, archive: Any, tmp_path: Path) -> None:
    pool = make_pool([actors.preparer], [BornDead.remote()], archive)
    for n in range(MAX_CRASHES - 1):
        assert not judge(pool, make_candidate(n, tmp_path, work=f"W{n}"))[0].is_correct
    with pytest.raises(ClusterError, match="keep dying: RuntimeError: no libtriton here"):
        judge(pool, make_candidate(99, tmp_path, work="last"))


def test_an_evaluator_that_came_back_with_other_software_judges_no_more(
    actors: Actors, archive: Any, tmp_path: Path
) -> None:
    foreign = ForeignEvaluator.remote()
    pool = make_pool([actors.preparer], [foreign, actors.evaluator], archive)
    verdicts = judge(pool, *(make_candidate(n, tmp_path, work=f"W{n}", takes=0.1) for n in range(6)))
    assert all(verdict.versions == make_report().versions for verdict in verdicts)
    n_foreign = sum(call.startswith("foreign") for call in calls(tmp_path))
    judge(pool, *(make_candidate(n, tmp_path, work=f"W{n}") for n in range(6, 9)))
    assert n_foreign and sum(call.startswith("foreign") for call in calls(tmp_path)) == n_foreign
    alone = make_pool([actors.preparer], [foreign], archive)
    with pytest.raises(ClusterError, match=r"nobody is left to judge: .* triton 3\.5\.0 instead of none"):
        judge(alone, make_candidate(99, tmp_path, work="last"))
    ray.kill(foreign)


def test_a_broken_device_ends_the_run(pool: JudgePool, tmp_path: Path) -> None:
    """Also for those who wait for the same work."""
    one, other = (make_candidate(n, tmp_path, work="no gpu", us=float(n), takes=0.5) for n in (1, 2))

    async def both() -> list[Any]:
        return await asyncio.gather(pool.judge([one]), pool.judge([other]), return_exceptions=True)

    errors = asyncio.run(asyncio.wait_for(both(), 60))
    assert [type(error) for error in errors] == [DeviceError, DeviceError]
    assert len(evaluated(tmp_path)) == 1


def is_judged_all_the_same(candidate: Candidate) -> bool:
    """Whether it is the one in some whose expected latency does not matter: told by its id alone."""
    return int(content_hash(candidate.run_id, candidate.program_id), 16) % ONE_IN == 0


def test_what_the_model_expects_to_be_slow_spends_no_gpu_time(actors: Actors, archive: Any, tmp_path: Path) -> None:
    pool = make_pool([actors.preparer], [actors.evaluator], archive, pre_rank=1.1)
    parent, near_child = make_candidate(1, tmp_path, modelled=100), make_candidate(2, tmp_path, modelled=109)
    slow = (make_candidate(3, tmp_path, modelled=150 + k / 1000) for k in range(99))
    far_child = next(c for c in slow if not is_judged_all_the_same(c))
    lineage = parent.lineage.model_copy(update={"parents": (parent.program_id,)})
    children = [child.model_copy(update={"lineage": lineage}) for child in (near_child, far_child)]
    judge(pool, parent)
    near, far = judge(pool, *children)
    assert near.is_correct
    assert far.outcome is Outcome.UNSUPPORTED and "1.50 times as long as its parent" in far.reason
    assert evaluated(tmp_path) == [parent.candidate_id, children[0].candidate_id]
