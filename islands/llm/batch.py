"""Prompts that leave in a file and answers that come back in one: for machines without internet, and for batch prices.

The file is OpenAI's batch format: a line for each request with `custom_id`, `method`, `url` and `body`; of answers, a
line for each with `custom_id` and `response` or `error`, in any order. Whoever answers is not trusted: each request
gets a typed outcome, whatever the file holds.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from db.errors import ConfigError
from db.hashing import content_hash
from db.llm_calls import ANSWERED, CUT_OFF, LlmCall
from islands.llm.chat_body import Answer, read_answer
from islands.llm.exchange import Completion, Failure, FailureKind, Outcome, Request, estimate_tokens
from islands.llm.models import ModelSpec, Price
from islands.llm.provider import limits_in_body

_URL = "/v1/chat/completions"
_REASON_LENGTH = 300
ANSWERED_BEFORE = "was answered before"


class Pending(NamedTuple):
    """A request that waits for its answer. `custom_id` is unique in its file."""

    custom_id: str
    request: Request
    spec: ModelSpec
    price: Price | None = None  # of a batch; None: unpriced


class Fault(NamedTuple):
    """A line of an answer file that answers nothing."""

    line: int  # from 1
    reason: str


class BatchAnswers(NamedTuple):
    """What came back: an outcome for every request, in their order, and the lines that were of no use."""

    outcomes: dict[str, Outcome]
    faults: tuple[Fault, ...]
    lines: Mapping[str, int] = MappingProxyType({})  # where the outcomes stand that are in the file; from 1

    @property
    def n_answered(self) -> int:
        return sum(isinstance(outcome, Completion) for outcome in self.outcomes.values())


def batch_lines(pending: Sequence[Pending]) -> str:
    """Requests as the text of a batch file, a line each. The models are named as their providers do.

    Raises:
        ValueError: two requests have the same id.
    """
    if len({one.custom_id for one in pending}) < len(pending):
        raise ValueError("every request of a batch needs an id of its own")
    lines = "".join(json.dumps(_line_of(one), ensure_ascii=False, allow_nan=False) + "\n" for one in pending)
    # what a text holds that UTF-8 cannot say must not stop the others
    return lines.encode("utf-8", errors="replace").decode("utf-8")


def write_batch(pending: Sequence[Pending], path: Path) -> None:
    """Writes requests as a batch file, whole or not at all.

    Raises:
        ConfigError: the file cannot be written.
        ValueError: two requests have the same id.
    """
    lines = batch_lines(pending)
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(lines, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", "name another file") from None


def read_batch(path: Path, pending: Sequence[Pending], closed: Container[str] = ()) -> BatchAnswers:
    """The answers in a file. A request without one has a failure; of several answers the first good one counts.

    `closed` are ids that waited once: an answer to one of them is told apart from one that nobody asked for.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    except OSError as error:
        hint = "give the file of answers, JSON lines"
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint) from None
    return answers_of(lines, pending, closed)


def answers_of(lines: Iterable[bytes], pending: Sequence[Pending], closed: Container[str] = ()) -> BatchAnswers:
    """As `read_batch`, of the lines of a file."""
    waiting = {one.custom_id: one for one in pending}
    found: dict[str, Outcome] = {}
    places: dict[str, int] = {}
    faults = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        answer = _parsed(line)
        reason = answer if isinstance(answer, str) else _useless(answer["custom_id"], waiting, found, closed)
        if reason or isinstance(answer, str):
            faults.append(Fault(number, reason))
            continue
        one = waiting[answer["custom_id"]]
        found[one.custom_id], places[one.custom_id] = _outcome_of(answer, one), number
    outcomes = {custom_id: found.get(custom_id) or _missing(one) for custom_id, one in waiting.items()}
    return BatchAnswers(outcomes, tuple(faults), places)


def call_of(one: Pending, outcome: Outcome, run_id: str) -> LlmCall:
    """What an answer came to, for the archive. The same answer to the same request is the same call.

    Nobody knows how long it took.
    """
    came: dict[str, Any] = {
        "call_id": content_hash(one.custom_id, outcome.model_dump_json()),
        "run_id": run_id,
        "island": one.request.island,
        "operator": one.request.operator,
        "model": one.spec.model_id,
        "prompt_hash": one.request.prompt_hash,
        "cost_usd": None if one.price is None else outcome.cost_usd,
        "seconds": 0.0,
    }
    if isinstance(outcome, Failure):
        return LlmCall(n_tokens_in=0, n_tokens_out=0, outcome=str(outcome.kind), reason=outcome.reason, **came)
    return LlmCall(
        n_tokens_in=outcome.n_tokens_in,
        n_tokens_out=outcome.n_tokens_out,
        has_estimated_tokens=outcome.has_estimated_tokens,
        outcome=CUT_OFF if outcome.is_cut_off else ANSWERED,
        **came,
    )


def _line_of(one: Pending) -> dict[str, Any]:
    spec, request = one.spec, one.request
    n_tokens_out = min(spec.max_output_tokens, request.max_output_tokens or spec.max_output_tokens)
    messages = [message.model_dump() for message in request.messages]
    body = {"model": spec.name, "messages": messages, **limits_in_body(spec, n_tokens_out)}
    return {"custom_id": one.custom_id, "method": "POST", "url": _URL, "body": body}


def _parsed(line: bytes) -> dict[str, Any] | str:
    """The object on a line that has an id, or what is wrong with it."""
    try:
        value = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return "no JSON"
    if not isinstance(value, dict):
        return f"expected a JSON object, got {type(value).__name__}"
    if not isinstance(value.get("custom_id"), str):
        return "no custom_id"
    return value


def _useless(
    custom_id: str, waiting: Mapping[str, Pending], found: Mapping[str, Outcome], closed: Container[str]
) -> str:
    """Why an answer is not taken; empty where it is."""
    if custom_id in closed:
        return f"{custom_id!r} {ANSWERED_BEFORE}"
    if custom_id not in waiting:
        return f"nobody asked {custom_id[:80]!r}"
    return f"a second answer to {custom_id!r}" if isinstance(found.get(custom_id), Completion) else ""


def _outcome_of(line: Mapping[str, Any], one: Pending) -> Outcome:
    response = line.get("response")
    if line.get("error"):
        return _failure(one, FailureKind.SERVER, _message_of(line["error"]))
    if not isinstance(response, Mapping):
        return _failure(one, FailureKind.MALFORMED, "no response")
    status = response.get("status_code", 200)
    if status != 200:
        return _failure(one, _kind_of(status), f"status {status}: {_message_of(response.get('body'))}")
    answer = read_answer(response.get("body"))
    if isinstance(answer, str):
        return _failure(one, FailureKind.MALFORMED, answer)
    completion = _completion(answer, one)
    if not answer.text.strip():  # and paid for
        empty = _failure(one, FailureKind.EMPTY, f"an empty answer ({answer.finish_reason})")
        return empty.model_copy(update={"cost_usd": completion.cost_usd})
    return completion


def _completion(answer: Answer, one: Pending) -> Completion:
    n_in, n_out = answer.n_tokens_in, answer.n_tokens_out
    is_estimated = n_in is None or n_out is None
    if n_in is None:
        n_in = sum(estimate_tokens(message.content) for message in one.request.messages)
    if n_out is None:
        n_out = estimate_tokens(answer.text)
    return Completion(
        text=answer.text,
        model=one.spec.model_id,
        finish_reason=answer.finish_reason,
        n_tokens_in=n_in,
        n_tokens_out=n_out,
        cost_usd=None if one.price is None else one.price.of(n_in, n_out, answer.n_tokens_cached),
        seconds=0.0,
        has_estimated_tokens=is_estimated,
    )


def _missing(one: Pending) -> Failure:
    return _failure(one, FailureKind.MISSING, "the file has no answer")


def _failure(one: Pending, kind: FailureKind, reason: str) -> Failure:
    line = " ".join(reason.split())[:_REASON_LENGTH]
    is_final = kind in (FailureKind.BAD_REQUEST, FailureKind.AUTHENTICATION)
    return Failure(kind=kind, reason=line, is_final=is_final, model=one.spec.model_id, n_tries=1)


def _kind_of(status: object) -> FailureKind:
    """The kind of failure that a status of HTTP means."""
    known = {401: FailureKind.AUTHENTICATION, 403: FailureKind.AUTHENTICATION, 429: FailureKind.RATE_LIMIT}
    known |= {408: FailureKind.TIMEOUT, 504: FailureKind.TIMEOUT}
    if not isinstance(status, int):
        return FailureKind.MALFORMED
    return known.get(status, FailureKind.BAD_REQUEST if 400 <= status < 500 else FailureKind.SERVER)


def _message_of(error: Any) -> str:
    """What an error says: its message, wherever that is."""
    inner = error.get("error", error) if isinstance(error, Mapping) else error
    message = inner.get("message") if isinstance(inner, Mapping) else inner
    return str(message) if message else "no message"
