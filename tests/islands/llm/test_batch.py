"""Prompts out in a file, answers back in another: in any order, missing, malformed, or asked for by nobody."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from support.llm_clients import request
from support.llm_server import answer

from db.errors import ConfigError
from islands.llm.batch import Pending, answers_of, call_of, read_batch, write_batch
from islands.llm.exchange import Completion, Failure, FailureKind
from islands.llm.models import Price, read_model
from islands.llm.provider import batch_price_of, price_of

PRICE = Price(usd_per_mtok_in=10, usd_per_mtok_out=30)
MODEL = read_model("openai/gpt-4o,temperature=0.5,max_output_tokens=2000")


def waiting(n: int, text: str = "make it faster") -> Pending:
    return Pending(f"run-0-{n}", request(f"{text} {n}"), MODEL, PRICE)


def line(n: int, *, body: Any = None, status: Any = 200, error: Any = None, text: str = "") -> str:
    """A line of answers as OpenAI writes it."""
    body = json.loads(answer(text or f"answer {n}").body) if body is None else body
    response = None if error else {"status_code": status, "request_id": "r", "body": body}
    return json.dumps({"id": f"b{n}", "custom_id": f"run-0-{n}", "response": response, "error": error})


def read(*lines: str | bytes, n: int = 1) -> Any:
    raw = [text if isinstance(text, bytes) else text.encode() for text in lines]
    return answers_of(raw, [waiting(k) for k in range(n)])


def test_requests_are_lines_of_openais_batch_format(tmp_path: Path) -> None:
    path = tmp_path / "out" / "prompts.jsonl"
    odd = Pending("odd", request("a\nb \u2028 \ud800 é", max_output_tokens=5), read_model("ollama/qwen:32b,unpriced"))
    write_batch([waiting(0), odd], path)
    lines = [json.loads(text) for text in path.read_bytes().split(b"\n") if text]
    assert lines[0] == {
        "custom_id": "run-0-0",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {
            "model": "gpt-4o",
            "messages": [{"role": "user", "content": "make it faster 0"}],
            "max_tokens": 2000,
            "temperature": 0.5,
        },
    }
    assert lines[1]["body"]["model"] == "qwen:32b" and lines[1]["body"]["max_tokens"] == 5
    assert "temperature" not in lines[1]["body"] and len(lines) == 2
    assert not list(path.parent.glob("*.part"))


def test_ids_are_unique_and_the_place_must_be_writable(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="id of its own"):
        write_batch([waiting(0), waiting(0)], tmp_path / "x.jsonl")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write"):
        write_batch([waiting(0)], tmp_path / "file" / "x.jsonl")


def test_answers_come_in_any_order(tmp_path: Path) -> None:
    lines = [line(n) for n in range(50)]
    random.Random(0).shuffle(lines)
    path = tmp_path / "answers.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n\r\n".join(lines).encode())
    answers = read_batch(path, [waiting(n) for n in range(50)])
    assert answers.faults == () and answers.n_answered == 50
    assert list(answers.outcomes) == [f"run-0-{n}" for n in range(50)]
    for n, outcome in enumerate(answers.outcomes.values()):
        assert isinstance(outcome, Completion) and outcome.text == f"answer {n}" and outcome.model == "openai/gpt-4o"
        assert outcome.cost_usd == pytest.approx(100 * 10e-6 + 50 * 30e-6)


def test_an_answer_that_is_missing_is_a_failure() -> None:
    answers = read(line(1), n=3)
    kinds = [o.kind if isinstance(o, Failure) else None for o in answers.outcomes.values()]
    assert kinds == [FailureKind.MISSING, None, FailureKind.MISSING]
    assert not answers.outcomes["run-0-0"].is_final


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (line(0, error={"code": "batch_expired", "message": "too late"}), FailureKind.SERVER),
        (line(0, status=429, body={"error": {"message": "slow down"}}), FailureKind.RATE_LIMIT),
        (line(0, status=400, body={"error": {"message": "too long"}}), FailureKind.BAD_REQUEST),
        (line(0, status=401, body=None), FailureKind.AUTHENTICATION),
        (line(0, status=500, body="oops"), FailureKind.SERVER),
        (line(0, status="fine"), FailureKind.MALFORMED),
        (line(0, status=None), FailureKind.MALFORMED),
        (line(0, body={}), FailureKind.MALFORMED),
        (line(0, body=[1, 2]), FailureKind.MALFORMED),
        (line(0, body="text"), FailureKind.MALFORMED),
        (line(0, body={"choices": [{"message": {"content": 7}}]}), FailureKind.MALFORMED),
        (line(0, body={"choices": [{"message": {"content": "  "}}]}), FailureKind.EMPTY),
        ('{"custom_id": "run-0-0"}', FailureKind.MALFORMED),
        ('{"custom_id": "run-0-0", "response": 5}', FailureKind.MALFORMED),
    ],
)
def test_a_bad_answer_is_a_typed_failure(text: str, kind: FailureKind) -> None:
    (outcome,) = read(text).outcomes.values()
    assert isinstance(outcome, Failure) and outcome.kind is kind
    assert outcome.reason and "\n" not in outcome.reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"\xff\xfe not utf-8", "no JSON"),
        ('{"custom_id": "run-0-0", "respo', "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("9" * 10_000, "no JSON"),
        ("[1]", "expected a JSON object, got list"),
        ('"run-0-0"', "expected a JSON object, got str"),
        ('{"response": {}}', "no custom_id"),
        ('{"custom_id": 0}', "no custom_id"),
        (line(7), "nobody asked 'run-0-7'"),
    ],
    ids=range(9),
)
def test_a_line_of_no_use_is_told_with_its_number(text: str | bytes, reason: str) -> None:
    answers = read("", text, line(0))
    assert answers.faults == ((2, reason),)
    assert isinstance(answers.outcomes["run-0-0"], Completion)


def test_the_first_good_answer_counts() -> None:
    answers = read(line(0, status=500), line(0, text="good"), line(0, text="late"))
    assert answers.outcomes["run-0-0"].text == "good"
    assert [fault.line for fault in answers.faults] == [3]


def test_answers_without_counts_and_in_parts() -> None:
    parts = [{"type": "text", "text": "x = "}, {"type": "text", "text": "1"}]
    body = {"choices": [{"message": {"content": parts}, "finish_reason": "length"}], "usage": {"prompt_tokens": 10**30}}
    (outcome,) = read(line(0, body=body)).outcomes.values()
    assert outcome.text == "x = 1" and outcome.is_cut_off and outcome.has_estimated_tokens
    assert 0 < outcome.n_tokens_in < 100


def test_a_missing_file_is_a_message(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        read_batch(tmp_path / "none.jsonl", [])


def test_an_answer_that_was_taken_before_is_told_apart() -> None:
    lines = [line(0).encode(), line(1).encode(), line(2).encode()]
    answers = answers_of(lines, [waiting(1)], closed={"run-0-0"})
    assert [fault.reason for fault in answers.faults] == ["'run-0-0' was answered before", "nobody asked 'run-0-2'"]
    assert dict(answers.lines) == {"run-0-1": 2}


def test_what_an_answer_came_to_is_a_call() -> None:
    one = waiting(0)
    answered, cut, empty = (
        read(text).outcomes["run-0-0"]
        for text in (
            line(0),
            line(0, body=json.loads(answer("x", finish_reason="length", usage=None).body)),
            line(0, body=json.loads(answer(" ").body)),
        )
    )
    calls = [call_of(one, outcome, "r1") for outcome in (answered, cut, empty, read().outcomes["run-0-0"])]
    assert [call.outcome for call in calls] == ["answered", "cut_off", "empty", "missing"]
    assert calls[0].cost_usd == calls[2].cost_usd == pytest.approx(100 * 10e-6 + 50 * 30e-6), "an empty one is paid for"
    assert calls[1].has_estimated_tokens and calls[3].cost_usd == 0
    assert (calls[0].model, calls[0].operator, calls[0].run_id) == ("openai/gpt-4o", "mutate", "r1")
    assert calls[0].call_id == call_of(one, answered, "r1").call_id != calls[1].call_id
    assert call_of(one._replace(price=None), answered, "r1").cost_usd is None


def test_a_batch_costs_what_its_provider_asks_for_batches() -> None:
    usual, batch = price_of(read_model("openai/gpt-4o")), batch_price_of(read_model("openai/gpt-4o"))
    assert usual is not None and batch is not None
    assert batch.usd_per_mtok_in == pytest.approx(usual.usd_per_mtok_in / 2)
    assert batch.usd_per_mtok_out == pytest.approx(usual.usd_per_mtok_out / 2)
    given = read_model("openai/gpt-4o,usd_per_mtok_in=1,usd_per_mtok_out=2")
    assert batch_price_of(given) == price_of(given), "a price that was given is that of the batch"
    assert batch_price_of(read_model("ollama/qwen,unpriced")) is None
    assert batch_price_of(read_model("deepseek/deepseek-chat")) == price_of(read_model("deepseek/deepseek-chat"))
