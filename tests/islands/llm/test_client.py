"""The client against a real server: good answers, every way to fail, other models, pauses, deadlines, many at once."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from support.llm_clients import MARKER, QUICK, client_of, complete, request, run, spec
from support.llm_server import (
    Asked,
    LlmServer,
    Reply,
    answer,
    broken,
    echoing_key,
    failing,
    hanging,
)

from db.errors import ConfigError
from db.llm_calls import LlmCall
from islands.llm.breaker import Circuit
from islands.llm.exchange import Completion, Failure, FailureKind
from islands.llm.models import Role, read_model

ONCE = QUICK.model_copy(update={"n_tries": 1})


def failure_of(reply: Reply, **options: Any) -> Failure:
    """What one call that gets this reply comes to."""
    with LlmServer([reply]) as server:
        (outcome,) = complete(client_of(spec(server.api_base), settings=ONCE), request(**options))
    assert isinstance(outcome, Failure)
    return outcome


def test_a_good_answer() -> None:
    calls: list[LlmCall] = []
    with LlmServer([answer("use fewer warps", usage=(1000, 200))]) as server:
        client = client_of(spec(server.api_base, temperature=0.4, max_output_tokens=512), journal=calls.append)
        (outcome,) = complete(client, request("hello", island=3))
        (asked,) = server.asked
    assert isinstance(outcome, Completion)
    assert (outcome.text, outcome.model, outcome.finish_reason) == ("use fewer warps", "openai/scripted", "stop")
    assert (outcome.n_tokens_in, outcome.n_tokens_out, outcome.n_tries) == (1000, 200, 1)
    assert outcome.cost_usd == pytest.approx(1000 * 10e-6 + 200 * 30e-6)
    assert 0 < outcome.seconds < 10 and not outcome.has_estimated_tokens and not outcome.is_cut_off
    assert asked.body["messages"] == [{"role": "user", "content": "hello"}]
    assert (asked.body["model"], asked.body["temperature"], asked.body["max_tokens"]) == ("scripted", 0.4, 512)
    assert asked.headers["authorization"] == f"Bearer {MARKER}"
    (call,) = calls
    assert (call.model, call.operator, call.island, call.outcome) == ("openai/scripted", "mutate", 3, "answered")
    assert call.prompt_hash == request("hello").prompt_hash and call.cost_usd == outcome.cost_usd


def test_an_answer_that_was_cut_off_is_an_answer() -> None:
    calls: list[LlmCall] = []
    with LlmServer([answer("<<<<<<< SEA", finish_reason="length")]) as server:
        (outcome,) = complete(client_of(spec(server.api_base), journal=calls.append), request())
    assert isinstance(outcome, Completion) and outcome.is_cut_off
    assert [call.outcome for call in calls] == ["cut_off"]


def test_tokens_that_nobody_counted_are_estimated() -> None:
    with LlmServer([answer("x" * 350, usage=None)]) as server:
        (outcome,) = complete(client_of(spec(server.api_base)), request("y" * 700))
    assert isinstance(outcome, Completion) and outcome.has_estimated_tokens
    assert (outcome.n_tokens_in, outcome.n_tokens_out) == (200, 100)
    assert outcome.cost_usd == pytest.approx(200 * 10e-6 + 100 * 30e-6)


def test_an_unpriced_model_costs_none() -> None:
    with LlmServer([answer("x")]) as server:
        (outcome,) = complete(client_of(spec(server.api_base, is_unpriced=True)), request())
        (failure,) = complete(client_of(spec("http://127.0.0.1:9/v1", is_unpriced=True)), request())
    assert isinstance(outcome, Completion) and outcome.cost_usd is None
    assert isinstance(failure, Failure) and failure.cost_usd is None


@pytest.mark.parametrize(
    ("reply", "kind", "is_final"),
    [
        (failing(429, retry_after_s=0.1), FailureKind.RATE_LIMIT, False),
        (failing(429, "You exceeded your quota", code="insufficient_quota"), FailureKind.RATE_LIMIT, True),
        (failing(402), FailureKind.RATE_LIMIT, True),
        (failing(500), FailureKind.SERVER, False),
        (failing(502), FailureKind.SERVER, False),
        (failing(503), FailureKind.SERVER, False),
        (failing(529, "overloaded"), FailureKind.SERVER, False),
        (failing(408), FailureKind.TIMEOUT, False),
        (failing(504), FailureKind.TIMEOUT, False),
        (failing(401), FailureKind.AUTHENTICATION, True),
        (failing(403), FailureKind.AUTHENTICATION, True),
        (failing(400), FailureKind.BAD_REQUEST, True),
        (failing(404, "no such model"), FailureKind.BAD_REQUEST, True),
        (failing(422), FailureKind.BAD_REQUEST, True),
        (failing(400, "maximum context length is 8192", code="context_length_exceeded"), FailureKind.BAD_REQUEST, True),
        (answer(""), FailureKind.EMPTY, False),
        (answer(" \n\t"), FailureKind.EMPTY, False),
        (answer(None), FailureKind.EMPTY, False),
        (answer(None, finish_reason="length"), FailureKind.EMPTY, False),
        (answer("", reasoning="I thought and thought"), FailureKind.EMPTY, False),
        (Reply("<html>bad gateway</html>"), FailureKind.MALFORMED, False),
        (Reply('{"choices": ['), FailureKind.MALFORMED, False),
        (Reply("[]"), FailureKind.MALFORMED, False),
        (Reply('{"id": "x", "choices": []}'), FailureKind.MALFORMED, False),
        (Reply('{"id": "x", "object": "chat.completion", "choices": [{"index": 0}]}'), FailureKind.MALFORMED, False),
        (broken(), FailureKind.CONNECTION, False),
    ],
    ids=lambda value: value if isinstance(value, FailureKind) else None,
)
def test_every_bad_reply_has_its_kind(reply: Reply, kind: FailureKind, is_final: bool) -> None:
    failure = failure_of(reply)
    assert (failure.kind, failure.is_final) == (kind, is_final), failure.reason
    assert failure.reason and "\n" not in failure.reason and "Traceback" not in failure.reason
    assert failure.model == "openai/scripted" and failure.n_tries == 1


def test_a_connection_that_breaks_within_the_answer() -> None:
    # litellm 1.80 reads what came as an answer that is no JSON
    assert failure_of(broken(150)).kind in (FailureKind.CONNECTION, FailureKind.MALFORMED)


def test_nobody_listens() -> None:
    (outcome,) = complete(client_of(spec("http://127.0.0.1:9/v1"), settings=ONCE), request())
    assert isinstance(outcome, Failure) and outcome.kind is FailureKind.CONNECTION


def test_a_server_that_hangs_costs_its_limit_and_no_more() -> None:
    with LlmServer([hanging()]) as server:
        impatient = ONCE.model_copy(update={"call_limit_s": 0.3})
        started = time.monotonic()
        (outcome,) = complete(client_of(spec(server.api_base), settings=impatient), request())
    assert isinstance(outcome, Failure) and outcome.kind is FailureKind.TIMEOUT
    assert 0.3 <= outcome.seconds < 2 and time.monotonic() - started < 10


def test_a_request_ends_at_its_deadline_whatever_is_tried() -> None:
    with LlmServer([failing(500), hanging()]) as server:
        (outcome,) = complete(client_of(spec(server.api_base)), request(limit_s=0.5))
    assert isinstance(outcome, Failure) and outcome.kind is FailureKind.TIMEOUT
    assert 0.4 <= outcome.seconds < 2 and outcome.n_tries == 2


def test_the_same_model_is_tried_again() -> None:
    with LlmServer([failing(500), answer(""), answer("third time")]) as server:
        (outcome,) = complete(client_of(spec(server.api_base)), request())
    assert isinstance(outcome, Completion)
    assert (outcome.text, outcome.n_tries) == ("third time", 3)
    # the empty answer was paid for
    assert outcome.cost_usd == pytest.approx(2 * (100 * 10e-6 + 50 * 30e-6))


def test_an_empty_answer_is_paid_for_and_asked_for_once_more() -> None:
    patient = QUICK.model_copy(update={"n_tries": 8})
    with LlmServer([answer("", finish_reason="length")]) as empty, LlmServer([answer("said")]) as other:
        (alone,) = complete(client_of(spec(empty.api_base), settings=patient), request())
        assert len(empty.asked) == 2
        models = spec(empty.api_base, "empty"), spec(other.api_base, "other", weight=0.001)
        (helped,) = complete(client_of(*models, settings=patient), request(preferred="openai/empty"))
    assert isinstance(alone, Failure) and alone.kind is FailureKind.EMPTY and not alone.is_final
    assert isinstance(helped, Completion) and helped.text == "said"


def test_tries_end() -> None:
    with LlmServer([failing(500)]) as server:
        (outcome,) = complete(client_of(spec(server.api_base)), request())
        assert len(server.asked) == 3
    assert isinstance(outcome, Failure) and outcome.kind is FailureKind.SERVER and outcome.n_tries == 3


def test_a_rate_limit_is_waited_for_as_long_as_the_server_says() -> None:
    with LlmServer([failing(429, retry_after_s=0.4), answer("now")]) as server:
        (outcome,) = complete(client_of(spec(server.api_base)), request())
    assert isinstance(outcome, Completion) and outcome.n_tries == 2
    assert 0.4 <= outcome.seconds < 3


def test_a_rate_limit_beyond_the_deadline_is_not_waited_for() -> None:
    with LlmServer([failing(429, retry_after_s=60)]) as server:
        client = client_of(spec(server.api_base))
        first, second = complete(client, request(limit_s=5))[0], complete(client, request("other", limit_s=5))[0]
        assert len(server.asked) == 1
    for outcome in (first, second):
        assert isinstance(outcome, Failure) and outcome.kind is FailureKind.RATE_LIMIT
        assert not outcome.is_final and outcome.seconds < 2


def test_a_rate_limit_holds_for_every_request_to_the_model() -> None:
    limited_until: list[float] = []

    def script(asked: Asked) -> Reply:
        if not limited_until:
            limited_until.append(time.monotonic() + 0.5)
            return failing(429, retry_after_s=0.5)
        return answer("now") if time.monotonic() >= limited_until[0] else failing(429, retry_after_s=0.5)

    async def work() -> list[object]:
        client = client_of(spec(server.api_base))
        await client.prepare()
        first = asyncio.create_task(client.complete(request("first")))
        while not limited_until:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        return [await first, *await asyncio.gather(*(client.complete(request(f"{n}")) for n in range(20)))]

    with LlmServer(script) as server:
        outcomes = run(work())
        assert len(server.asked) == 22
    assert all(isinstance(outcome, Completion) for outcome in outcomes)


def test_another_model_of_the_role_takes_over_at_once() -> None:
    slow = QUICK.model_copy(update={"backoff_s": 5.0})
    with LlmServer([failing(500)]) as bad, LlmServer([answer("from the other")]) as good:
        heavy = spec(bad.api_base, "bad", weight=900)
        client = client_of(heavy, spec(good.api_base, "good", weight=0.01), settings=slow)
        (outcome,) = complete(client, request())
    assert isinstance(outcome, Completion) and outcome.seconds < 3
    assert (outcome.model, outcome.n_tries) == ("openai/good", 2)


def test_the_preferred_model_is_asked_first_and_others_take_over_from_it() -> None:
    slow = QUICK.model_copy(update={"backoff_s": 5.0})
    with LlmServer([failing(500), answer("from the liked")]) as liked, LlmServer([answer("from the other")]) as other:
        models = spec(other.api_base, "other", weight=900), spec(liked.api_base, "liked", weight=0.01)
        client = client_of(*models, settings=slow)
        (first,) = complete(client, request(preferred="openai/liked"))
        assert len(liked.asked) == 1 and isinstance(first, Completion) and first.model == "openai/other"
        (second,) = complete(client_of(*models), request(preferred="openai/liked"))
        (third,) = complete(client_of(*models), request(preferred="openai/not-in-the-list"))
    assert isinstance(second, Completion) and second.model == "openai/liked"
    assert isinstance(third, Completion) and third.model == "openai/other"


def test_a_final_refusal_is_not_repeated_to_the_same_model() -> None:
    with LlmServer([failing(400)]) as server:
        (outcome,) = complete(client_of(spec(server.api_base)), request())
        assert len(server.asked) == 1
    assert isinstance(outcome, Failure) and outcome.kind is FailureKind.BAD_REQUEST


def test_a_refused_prompt_says_nothing_about_the_model() -> None:
    with LlmServer([failing(400)]) as server:
        client = client_of(spec(server.api_base))
        complete(client, *(request(f"{n}") for n in range(20)))
        assert set(client.circuits().values()) == {Circuit.CLOSED}


def test_a_model_that_refuses_the_key_is_never_asked_again() -> None:
    with LlmServer(echoing_key()) as server:
        client = client_of(spec(server.api_base))
        (first,) = complete(client, request("a"))
        (second,) = complete(client, request("b"))
        assert len(server.asked) == 1
    assert isinstance(first, Failure) and first.kind is FailureKind.AUTHENTICATION and first.is_final
    assert isinstance(second, Failure) and second.kind is FailureKind.NO_MODEL and second.is_final
    assert set(client.circuits().values()) == {Circuit.GONE} and not client.has_model(request())
    assert "Incorrect API key" in first.reason and MARKER not in repr((first, second))


def test_the_circuit_opens_after_failures_in_a_row_and_closes_again() -> None:
    is_broken = [True]
    with LlmServer(lambda asked: failing(500) if is_broken else answer("back")) as server:
        client = client_of(spec(server.api_base))
        first = complete(client, request("a"), request("b"))
        assert {o.kind for o in first if isinstance(o, Failure)} == {FailureKind.SERVER}
        n_asked = len(server.asked)
        assert n_asked == 5 or n_asked == 6
        started = time.monotonic()
        (refused,) = complete(client, request("c"))
        assert time.monotonic() - started < 0.15 and len(server.asked) == n_asked
        assert isinstance(refused, Failure) and refused.kind is FailureKind.NO_MODEL and not refused.is_final
        assert not client.has_model(request())
        is_broken.clear()
        time.sleep(0.3)
        assert set(client.circuits().values()) == {Circuit.HALF_OPEN} and client.has_model(request())
        (outcome,) = complete(client, request("d"))
    assert isinstance(outcome, Completion) and set(client.circuits().values()) == {Circuit.CLOSED}


def test_half_open_lets_one_call_try() -> None:
    with LlmServer([failing(500)]) as server:
        client = client_of(spec(server.api_base))
        complete(client, request("a"), request("b"))
        n_asked = len(server.asked)
        time.sleep(0.3)
        outcomes = complete(client, *(request(f"{n}") for n in range(30)))
        assert len(server.asked) == n_asked + 1
    assert all(isinstance(outcome, Failure) for outcome in outcomes)


def test_an_outage_is_found_out_by_a_few_calls_however_many_wait() -> None:
    narrow = QUICK.model_copy(update={"n_in_flight": 2, "breaker_open_s": 60.0})
    with LlmServer([failing(500)]) as server:
        outcomes = complete(client_of(spec(server.api_base), settings=narrow), *(request(f"{n}") for n in range(40)))
        assert len(server.asked) <= 6
    assert all(isinstance(outcome, Failure) and not outcome.is_final for outcome in outcomes)


def test_roles_have_models_of_their_own() -> None:
    with LlmServer(lambda asked: answer(str(asked.body["model"]))) as server:
        specs = [
            spec(server.api_base, "thinker", role="planner"),
            spec(server.api_base, "worker", role="executor"),
            spec(server.api_base, "anybody"),
        ]
        roles = (Role.PLANNER, Role.EXECUTOR, Role.REFLECTOR, Role.ANY)
        outcomes = complete(client_of(*specs), *(request(role=role) for role in roles))
        (named,) = complete(client_of(*specs), request(model="openai/worker"))
        (unknown,) = complete(client_of(*specs), request(model="openai/nobody"))
        (none,) = complete(client_of(specs[0]), request(role=Role.EXECUTOR))
    texts = [outcome.text for outcome in outcomes if isinstance(outcome, Completion)]
    assert texts == ["thinker", "worker", "anybody", "anybody"]
    assert isinstance(named, Completion) and named.text == "worker"
    for outcome in (unknown, none):
        assert isinstance(outcome, Failure) and outcome.kind is FailureKind.NO_MODEL and outcome.is_final


def test_a_role_that_has_lost_its_model_says_nothing_of_the_others() -> None:
    """A failure that is final ends all correspondence of a run."""
    is_refused = {"planner"}
    with LlmServer(lambda asked: failing(401) if asked.body["model"] in is_refused else answer("here")) as server:
        client = client_of(*(spec(server.api_base, role, role=role) for role in ("planner", "executor")))
        lost = [complete(client, request(text, role=Role.PLANNER))[0] for text in "ab"]
        (answered,) = complete(client, request(role=Role.EXECUTOR))
        is_refused.add("executor")
        (last,) = complete(client, request("c", role=Role.EXECUTOR))
    assert [outcome.kind for outcome in lost if isinstance(outcome, Failure) and not outcome.is_final] == [
        FailureKind.AUTHENTICATION,
        FailureKind.NO_MODEL,
    ]
    assert isinstance(answered, Completion) and isinstance(last, Failure) and last.is_final


def test_weights_share_out_requests_and_equal_requests_choose_equally() -> None:
    with LlmServer(lambda asked: answer(str(asked.body["model"]))) as server:
        specs = [spec(server.api_base, "often", weight=4), spec(server.api_base, "seldom", weight=1)]
        first, again = (complete(client_of(*specs), *(request(f"{n}") for n in range(100))) for _ in range(2))
    models = [outcome.model for outcome in first if isinstance(outcome, Completion)]
    assert models == [outcome.model for outcome in again if isinstance(outcome, Completion)]
    assert 65 <= models.count("openai/often") <= 93


def test_two_hundred_calls_are_in_flight_at_once() -> None:
    patient = QUICK.model_copy(update={"call_limit_s": 60.0})
    with LlmServer([answer("x", delay_s=3.0)]) as server:
        client = client_of(spec(server.api_base), settings=patient)
        outcomes = complete(client, *(request(f"{n}", limit_s=60) for n in range(200)))
        assert server.n_most_at_once >= 150
    assert all(isinstance(outcome, Completion) for outcome in outcomes)


def test_no_more_are_in_flight_than_allowed() -> None:
    narrow = QUICK.model_copy(update={"n_in_flight": 3})
    with LlmServer([answer("x", delay_s=0.02)]) as server:
        outcomes = complete(client_of(spec(server.api_base), settings=narrow), *(request(f"{n}") for n in range(20)))
        assert server.n_most_at_once <= 3
    assert all(isinstance(outcome, Completion) for outcome in outcomes)


@pytest.mark.parametrize(
    "text", ["Wed, 21 Oct 2015 07:28:00 GMT", "soon", "nan", "-5", ""], ids=["past", "word", "nan", "negative", "empty"]
)
def test_a_retry_after_of_any_kind_does_no_harm(text: str) -> None:
    limited = Reply('{"error": {"message": "slow down"}}', 429, {"Retry-After": text})
    with LlmServer([limited, answer("now")]) as server:
        (outcome,) = complete(client_of(spec(server.api_base)), request())
    assert isinstance(outcome, Completion) and outcome.seconds < 3


def test_a_retry_after_may_be_a_date() -> None:
    later = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 3600))
    with LlmServer([Reply("{}", 429, {"Retry-After": later})]) as server:
        (failure,) = complete(client_of(spec(server.api_base)), request())
        assert len(server.asked) == 1
    assert isinstance(failure, Failure) and failure.kind is FailureKind.RATE_LIMIT


def test_a_model_without_a_price_is_a_failure_and_an_error_when_prepared() -> None:
    client = client_of(read_model("openai/nobody-knows-it"))
    outcome = run(client.complete(request()))
    assert isinstance(outcome, Failure) and outcome.kind is FailureKind.NO_MODEL and outcome.is_final
    assert "unpriced" in outcome.reason
    with pytest.raises(ConfigError, match="no price is known"):
        run(client.prepare())


def test_cancelling_a_request_cancels_its_call() -> None:
    calls: list[LlmCall] = []

    async def work() -> None:
        client = client_of(spec(server.api_base), journal=calls.append)
        await client.prepare()
        task = asyncio.create_task(client.complete(request()))
        while not server.asked:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert client.budget.in_flight.n_calls == 0 and client.budget.spent.n_calls == 1

    with LlmServer([hanging()]) as server:
        run(work())
    assert [call.outcome for call in calls] == ["timeout"]
