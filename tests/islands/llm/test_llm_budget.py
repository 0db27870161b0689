"""What may be spent is never overspent, however many calls are in flight."""

from __future__ import annotations

import asyncio

import pytest
from support.llm_clients import QUICK, client_of, complete, request, run, spec
from support.llm_server import LlmServer, answer, failing, hanging

from islands.llm.budget import Limits, LlmBudget, Spend
from islands.llm.exchange import Completion, Failure, FailureKind
from islands.llm.models import Price, Role

PRICE = Price(usd_per_mtok_in=10, usd_per_mtok_out=30)


def exhausted(outcome: object) -> bool:
    return isinstance(outcome, Failure) and outcome.kind is FailureKind.BUDGET and outcome.is_final


def test_calls_in_flight_count_until_they_are_settled() -> None:
    async def work() -> None:
        budget = LlmBudget(Limits(usd=1.0))
        first = await budget.reserve(PRICE, 10_000, 10_000)
        second = await budget.reserve(PRICE, 10_000, 10_000)
        assert isinstance(first, int) and isinstance(second, int)
        assert budget.in_flight == Spend(usd=0.8, n_tokens=40_000, n_calls=2)
        third = asyncio.create_task(budget.reserve(PRICE, 10_000, 10_000))
        await asyncio.sleep(0.01)
        assert not third.done()
        budget.settle(first, 0.05, 1500)
        assert isinstance(await third, int)
        budget.release(second)
        assert budget.spent == Spend(usd=0.05, n_tokens=1500, n_calls=1)
        assert budget.in_flight.n_calls == 1

    run(asyncio.wait_for(work(), 5))


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Limits(usd=0.3), "dollars"),
        (Limits(n_tokens=15_000), "tokens"),
        (Limits(n_calls=0), "calls"),
        (Limits(seconds=0.0), "seconds"),
    ],
)
def test_every_limit_refuses_at_once(limits: Limits, words: str) -> None:
    answer_now = run(asyncio.wait_for(LlmBudget(limits).reserve(PRICE, 10_000, 10_000), 1))
    assert isinstance(answer_now, str) and words in answer_now


def test_a_refusal_reaches_those_who_wait() -> None:
    async def work() -> object:
        budget = LlmBudget(Limits(n_calls=1))
        ticket = await budget.reserve(None, 1, 1)
        waiting = asyncio.create_task(budget.reserve(None, 1, 1))
        await asyncio.sleep(0.01)
        assert isinstance(ticket, int) and not waiting.done()
        budget.settle(ticket, 0.0, 2)
        return await waiting

    assert isinstance(run(asyncio.wait_for(work(), 5)), str)


def test_what_earlier_sittings_spent_counts() -> None:
    now = [100.0]
    budget = LlmBudget(Limits(usd=1.0, seconds=60), clock=lambda: now[0])
    budget.resume(Spend(usd=0.7, n_tokens=5, n_calls=2), elapsed_s=50)
    assert "dollars" in budget.exhausted(PRICE, 10_000, 10_000) and not budget.exhausted(PRICE, 10, 10)
    now[0] += 1000  # workers start, baselines are timed
    assert budget.time_left_s == 10 and not budget.exhausted(None, 0, 0)


def test_the_clock_goes_from_the_first_question_on() -> None:
    async def work() -> None:
        now = [100.0]
        budget = LlmBudget(Limits(seconds=60), clock=lambda: now[0])
        now[0] += 1000
        assert isinstance(await budget.reserve(None, 10, 10), int)
        now[0] += 59
        assert isinstance(await budget.reserve(None, 10, 10), int) and budget.time_left_s == 1
        now[0] += 1
        assert "seconds" in str(await budget.reserve(None, 10, 10))

    run(asyncio.wait_for(work(), 5))


def test_a_hundred_requests_at_once_do_not_overspend() -> None:
    # a call may cost 0.031 dollars and turns out to cost 0.0025
    with LlmServer([answer("x", delay_s=0.02)]) as server:
        budget = LlmBudget(Limits(usd=0.1))
        client = client_of(spec(server.api_base, max_output_tokens=1000), budget=budget)
        outcomes = complete(client, *(request(f"{n}") for n in range(100)))
        n_answered = sum(isinstance(outcome, Completion) for outcome in outcomes)
        assert len(server.asked) == n_answered
    assert all(isinstance(outcome, Completion) or exhausted(outcome) for outcome in outcomes)
    assert budget.spent.usd == pytest.approx(n_answered * 0.0025) and budget.spent.usd <= 0.1
    # it stops only where the next call might break the limit
    assert budget.spent.usd > 0.1 - 0.035 and budget.in_flight.n_calls == 0


def test_calls_are_counted_tries_included() -> None:
    with LlmServer([failing(500)]) as server:
        client = client_of(spec(server.api_base), budget=LlmBudget(Limits(n_calls=2)))
        (outcome,) = complete(client, request())
        assert len(server.asked) == 2
    assert exhausted(outcome) and not client.has_model(request())


def test_an_unpriced_model_is_held_by_tokens_not_dollars() -> None:
    with LlmServer([answer("x", usage=(100, 50))]) as server:
        model = spec(server.api_base, is_unpriced=True, max_output_tokens=100)
        budget = LlmBudget(Limits(usd=0.0, n_tokens=400))
        outcomes = [complete(client_of(model, budget=budget), request(f"{n}"))[0] for n in range(4)]
    assert [exhausted(outcome) for outcome in outcomes] == [False, False, True, True]
    assert budget.spent == Spend(usd=0.0, n_tokens=300, n_calls=2)


def test_a_model_without_a_price_goes_on_when_the_dollars_are_spent() -> None:
    with LlmServer(lambda asked: answer(str(asked.body["model"]))) as server:
        dear, free = spec(server.api_base, "dear"), spec(server.api_base, "free", is_unpriced=True)
        client = client_of(dear, free, budget=LlmBudget(Limits(usd=0.0)))
        (outcome,) = complete(client, request(preferred="openai/dear"))
        planner = spec(server.api_base, "dear", role="planner")
        (planned,) = complete(client_of(planner, free, budget=LlmBudget(Limits(usd=0.0))), request(role=Role.PLANNER))
    assert isinstance(outcome, Completion) and outcome.text == "free"
    assert isinstance(planned, Failure) and planned.kind is FailureKind.BUDGET and not planned.is_final


def test_a_call_that_was_given_up_is_paid_for() -> None:
    with LlmServer([hanging()]) as server:
        settings = QUICK.model_copy(update={"n_tries": 1, "call_limit_s": 0.2})
        client = client_of(spec(server.api_base), settings=settings)
        (outcome,) = complete(client, request("x" * 35_000))
    assert isinstance(outcome, Failure) and outcome.cost_usd == pytest.approx(10_000 * 10e-6)
    assert client.budget.spent.usd == outcome.cost_usd


def test_a_call_that_nobody_answered_is_not() -> None:
    client = client_of(spec("http://127.0.0.1:9/v1"))
    complete(client, request("x" * 35_000))
    assert client.budget.spent == Spend(n_calls=3)


def test_wall_clock_ends_calls_too() -> None:
    with LlmServer([hanging()]) as server:
        client = client_of(spec(server.api_base), budget=LlmBudget(Limits(seconds=1.0)))
        (outcome,) = complete(client, request())
    assert isinstance(outcome, Failure) and outcome.seconds < 3
