"""Which of many actors a call goes to, without any process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import ActorUnavailableError, RayActorError
from support.here import Here
from support.workers import make_candidate, make_report, make_verdict

from db.errors import ClusterError
from db.records import Candidate, PrecisionClass, Verdict
from evaluators.evaluator import Prepared
from evolve import judging
from evolve.judging import ActorPool, JudgePool
from evolve.mailbox import MAX_CALLS, N_UNDER_WAY, Mailbox


class Worker:
    """Keeps calls until it is let go; dead, it fails at once."""

    def __init__(self, *, is_dead: bool = False) -> None:
        self.n_calls = 0
        self.is_dead = is_dead
        self.may_answer = asyncio.Event()

    async def work(self) -> int:
        self.n_calls += 1
        if self.is_dead:
            raise RayActorError
        await self.may_answer.wait()
        return self.n_calls


async def begin(pool: ActorPool, n: int) -> list[asyncio.Task[Any]]:
    tasks = [asyncio.create_task(pool.call("work")) for _ in range(n)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


def test_calls_go_to_whoever_has_least_to_do_also_to_one_that_came_later() -> None:
    async def play() -> None:
        workers = [Worker() for _ in range(3)]
        pool = ActorPool([Here(worker) for worker in workers[:2]])
        first = await begin(pool, 4)
        pool.add(Here(workers[2]))
        more = await begin(pool, 2)
        assert [worker.n_calls for worker in workers] == [2, 2, 2]
        workers[0].may_answer.set()
        await asyncio.wait([*first, *more], return_when=asyncio.FIRST_COMPLETED)
        more += await begin(pool, 2)
        assert [worker.n_calls for worker in workers] == [4, 2, 2]
        for worker in workers:
            worker.may_answer.set()
        await asyncio.gather(*first, *more)
        assert len(pool) == 3 == len(pool.busy_shares)

    asyncio.run(asyncio.wait_for(play(), 10))


def test_a_dead_actor_is_asked_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "AVOIDED_S", 0.05)

    async def play() -> None:
        dead, alive = Worker(is_dead=True), Worker()
        alive.may_answer.set()
        pool = ActorPool([Here(dead), Here(alive)])
        failed = await asyncio.gather(*(pool.call("work") for _ in range(2)), return_exceptions=True)
        assert sum(isinstance(result, RayActorError) for result in failed) == 1
        for _ in range(5):
            await pool.call("work")
        assert (dead.n_calls, alive.n_calls) == (1, 6)
        dead.is_dead = False
        dead.may_answer.set()
        await asyncio.sleep(0.06)
        for _ in range(4):
            await pool.call("work")
        assert (dead.n_calls, alive.n_calls) == (3, 8)

    asyncio.run(asyncio.wait_for(play(), 10))


def test_where_all_are_dead_somebody_is_asked() -> None:
    async def play() -> None:
        pool = ActorPool([Here(Worker(is_dead=True)) for _ in range(2)])
        for _ in range(5):
            with pytest.raises(RayActorError):
                await pool.call("work")

    asyncio.run(asyncio.wait_for(play(), 10))


def test_calls_that_meet_a_busy_actor_go_together() -> None:
    async def play() -> None:
        messages: list[list[int]] = []
        may_answer = asyncio.Event()

        async def send(calls: Any) -> list[int]:
            messages.append(list(calls))
            await may_answer.wait()
            return [10 * call for call in calls]

        mailbox: Mailbox[int] = Mailbox(send)
        n = N_UNDER_WAY + MAX_CALLS + 3
        answers = asyncio.gather(*(mailbox.call(number) for number in range(n)))
        await asyncio.sleep(0.01)
        assert messages == [[number] for number in range(N_UNDER_WAY)]
        may_answer.set()
        assert await answers == [10 * number for number in range(n)]
        assert [len(message) for message in messages] == [1] * N_UNDER_WAY + [MAX_CALLS, 3]

    asyncio.run(asyncio.wait_for(play(), 10))


def test_what_goes_wrong_with_a_message_is_told_to_everybody_in_it() -> None:
    async def play() -> None:
        async def send(calls: Any) -> list[int]:
            await asyncio.sleep(0.01)
            if 3 in calls:
                raise RayActorError
            return list(calls)

        mailbox: Mailbox[int] = Mailbox(send)
        answers = await asyncio.gather(*(mailbox.call(number) for number in range(4)), return_exceptions=True)
        assert answers[:2] == [0, 1] and all(isinstance(one, RayActorError) for one in answers[2:])
        assert await mailbox.call(7) == 7

    asyncio.run(asyncio.wait_for(play(), 10))


class Traveller:
    """An evaluator whose node went away for some calls; a preparer that is always there."""

    def __init__(self, n_away: int) -> None:
        self.n_away = n_away

    async def prepare(self, candidate: Candidate, report: object) -> Prepared:
        return Prepared(candidate=candidate)

    async def evaluate(self, prepared: Prepared) -> Verdict:
        if self.n_away:
            self.n_away -= 1
            raise ActorUnavailableError("The actor is temporarily unavailable: IOError: The actor is restarting.", None)
        return make_verdict(prepared.candidate)


def judged_by(worker: Traveller, tmp_path: Path) -> Verdict:
    pool = ActorPool([Here(worker)])
    judge = JudgePool(
        preparers=pool, evaluators=pool, archive=None, report=make_report(), precision=PrecisionClass.REFERENCE
    )
    (verdict,) = asyncio.run(asyncio.wait_for(judge.judge([make_candidate(1, tmp_path)]), 10))
    return verdict


def test_a_candidate_waits_while_no_node_has_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is not held to what it never met."""
    monkeypatch.setattr(judging, "NOBODY_S", 0.001)
    assert judged_by(Traveller(5 * judging.N_TRIALS), tmp_path).is_correct


def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(judging, "NOBODY_S", 0.001)
    monkeypatch.setattr(judging, "PATIENCE_S", 0.05)
    with pytest.raises(ClusterError, match="nobody has judged") as caught:
        judged_by(Traveller(10**6), tmp_path)
    assert "evolve resume" in caught.value.hint


def test_calls_that_one_death_ends_count_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an actor with many calls would be avoided for hours."""
    monkeypatch.setattr(judging, "AVOIDED_S", 0.02)

    async def play() -> list[str]:
        worker, told = Worker(), list[str]()
        pool = ActorPool([Here(worker)], told.append)

        async def dies() -> None:
            await worker.may_answer.wait()
            raise RayActorError

        monkeypatch.setattr(worker, "work", dies)
        calls = await begin(pool, 6)
        worker.may_answer.set()
        await asyncio.gather(*calls, return_exceptions=True)
        assert pool._members[0].n_deaths == 1 and pool._members[0].is_avoided
        return told

    assert len(asyncio.run(asyncio.wait_for(play(), 10))) == 1
