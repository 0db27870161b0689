"""Two hundred bad answers, one conversation each, over HTTP: what they cost, and whether anything falls over.

    python -m benchmarks.llm_refusals                       # prints JSON
    python -m benchmarks.llm_refusals --json FILE           # and writes it

A local server answers every request of a conversation the same bad way: text that is no edit (the kinds of
`tests/support/bad_answers.py`) or a fault of a provider (429, 5xx, time-outs, broken and hanging connections, bodies of
no chat endpoint). The real client, conversations and readers take it in. Counted are exceptions (crashes),
conversations that do not end in time (hangs), refusals that are not of the kind that they should be, and calls: an
answer that cannot be read is worth one call more, and a fault of a provider the tries that are configured.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import platform
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.bad_answers import BadAnswer, bad_answers  # noqa: E402
from support.llm_server import LlmServer, Reply, answer, broken, failing, hanging  # noqa: E402
from support.staging import BRIEF, PROBLEM, SOURCE, elite  # noqa: E402

from islands.dialogues import Dialogues, DialogueSettings  # noqa: E402
from islands.llm.answers import read_answer  # noqa: E402
from islands.llm.client import LlmClient, LlmSettings  # noqa: E402
from islands.llm.exchange import Completion, FailureKind, Outcome  # noqa: E402
from islands.llm.keys import Keys  # noqa: E402
from islands.llm.models import read_model  # noqa: E402
from islands.llm.provider import load_litellm  # noqa: E402
from islands.llm.refusals import Refusal, RefusalKind  # noqa: E402

N_TRIES = 2
CALL_LIMIT_S = 1.0
CASE_LIMIT_S = 60.0
QUICK = LlmSettings(
    n_tries=N_TRIES, call_limit_s=CALL_LIMIT_S, backoff_s=0.01, breaker_open_s=0.05, n_breaker_failures=9
)
K = FailureKind


@dataclass(frozen=True)
class Case:
    """One way to answer badly, the kinds of refusal or failure that say so, and the calls that it is worth."""

    name: str
    reply: Reply
    kinds: frozenset[RefusalKind] | frozenset[FailureKind]
    n_calls: int


@dataclass
class Outcomes:
    """What came of all cases."""

    n_answers: int = 0
    n_calls: int = 0
    slowest_s: float = 0.0
    crashes: list[str] = field(default_factory=list)
    hangs: list[str] = field(default_factory=list)
    untyped: list[str] = field(default_factory=list)
    too_dear: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)


def _body(value: Any) -> Reply:
    return Reply(value if isinstance(value, str) else json.dumps(value))


FAULTS: list[tuple[str, Callable[[], Reply], frozenset[FailureKind], int]] = [
    ("429 with Retry-After", lambda: failing(429, retry_after_s=0.1), frozenset([K.RATE_LIMIT]), N_TRIES),
    ("429", lambda: failing(429), frozenset([K.RATE_LIMIT]), N_TRIES),
    ("429, out of credit", lambda: failing(429, "quota", code="insufficient_quota"), frozenset([K.RATE_LIMIT]), 1),
    ("500", lambda: failing(500), frozenset([K.SERVER]), N_TRIES),
    ("503", lambda: failing(503), frozenset([K.SERVER]), N_TRIES),
    ("504", lambda: failing(504), frozenset([K.TIMEOUT]), N_TRIES),
    ("slow", lambda: answer("x = 1", delay_s=CALL_LIMIT_S + 0.5), frozenset([K.TIMEOUT]), N_TRIES),
    ("hanging", hanging, frozenset([K.TIMEOUT]), N_TRIES),
    ("broken at once", broken, frozenset([K.CONNECTION]), N_TRIES),
    ("broken in its head", lambda: broken(20), frozenset([K.CONNECTION]), N_TRIES),
    ("broken in its body", lambda: broken(150), frozenset([K.CONNECTION, K.MALFORMED]), N_TRIES),
    ("400, too long", lambda: failing(400, "context", code="context_length_exceeded"), frozenset([K.BAD_REQUEST]), 1),
    ("401", lambda: failing(401), frozenset([K.AUTHENTICATION]), 1),
    ("404", lambda: failing(404, "no such model"), frozenset([K.BAD_REQUEST]), 1),
    ("empty", lambda: answer(""), frozenset([K.EMPTY]), N_TRIES),
    ("null", lambda: answer(None), frozenset([K.EMPTY, K.MALFORMED]), N_TRIES),
    ("cut off before any text", lambda: answer("", finish_reason="length"), frozenset([K.EMPTY]), N_TRIES),
    ("no JSON", lambda: _body("<html>busy</html>"), frozenset([K.MALFORMED]), N_TRIES),
    ("no choices", lambda: _body({"choices": []}), frozenset([K.MALFORMED]), N_TRIES),
    ("another shape", lambda: _body({"answer": "x = 1"}), frozenset([K.MALFORMED, K.SERVER]), N_TRIES),
]


def cases(n: int, rng_seed: int) -> list[Case]:
    """`n` cases: one provider's fault in five, the rest answers that are no edit, all kinds in turn."""
    n_faults = n // 5
    faults = [FAULTS[k % len(FAULTS)] for k in range(n_faults)]
    made = [_bad(one) for one in bad_answers(SOURCE, n - n_faults, rng_seed)]
    made += [Case(f"fault: {name}", make(), kinds, n_calls) for name, make, kinds, n_calls in faults]
    random.Random(rng_seed).shuffle(made)
    return made


def _bad(one: BadAnswer) -> Case:
    """An answer that goes back once, with the reason; one that is blank is tried again like any fault."""
    reply, name = answer(one.text, finish_reason=one.finish_reason), f"answer: {one.name}"
    if not one.text.strip():
        return Case(name, reply, frozenset([K.EMPTY]), N_TRIES)
    # litellm reads a server that does not say why it stopped as one that was done
    may_seem_whole = not one.finish_reason and RefusalKind.CUT_OFF in one.kinds
    return Case(name, reply, one.kinds | {RefusalKind.NOT_PYTHON} if may_seem_whole else one.kinds, 2)


async def try_all(all_cases: list[Case]) -> Outcomes:
    current: list[Case] = []
    out = Outcomes()
    with LlmServer(lambda _: current[0].reply) as server:
        for case in all_cases:
            current[:] = [case]
            n_before, began = len(server.asked), time.perf_counter()
            try:
                await asyncio.wait_for(_converse(case, server.api_base, out), CASE_LIMIT_S)
            except TimeoutError:
                out.hangs.append(case.name)
            except Exception as error:  # what is counted here
                out.crashes.append(f"{case.name}: {type(error).__name__}: {error}")
            n_calls = len(server.asked) - n_before
            out.n_answers, out.n_calls = out.n_answers + 1, out.n_calls + n_calls
            out.slowest_s = max(out.slowest_s, time.perf_counter() - began)
            if n_calls > case.n_calls:
                out.too_dear.append(f"{case.name}: {n_calls} calls, {case.n_calls} expected")
    return out


async def _converse(case: Case, api_base: str, out: Outcomes) -> None:
    """One conversation to its end."""
    client = LlmClient([read_model(f"openai/scripted,api_base={api_base},unpriced")], Keys({}), settings=QUICK)
    await client.prepare()
    dialogues = Dialogues(BRIEF, DialogueSettings(operators=("mutate",), in_flight=1), island_id=0)
    rng, elites = random.Random(0), [elite()]
    while questions := dialogues.ask(1, elites, rng):
        elites = []  # this conversation alone
        outcome = await client.complete(questions[0].request)
        _note(case, outcome, out)
        if dialogues.answered(questions[0].dialogue_id, outcome) is not None:
            out.untyped.append(f"{case.name}: a program came of it")
            return


def _note(case: Case, outcome: Outcome, out: Outcomes) -> None:
    """Whether an outcome is refused in words that fit."""
    kind: RefusalKind | FailureKind | None = None
    if isinstance(outcome, Completion):
        entry_point = PROBLEM.entry_point.value
        read = read_answer(outcome.text, SOURCE, entry_point=entry_point, finish_reason=outcome.finish_reason)
        kind = read.kind if isinstance(read, Refusal) and read.reason else None
    elif outcome.reason:
        kind = outcome.kind
    out.kinds[str(kind)] += 1
    if kind not in case.kinds:
        out.untyped.append(f"{case.name}: {kind}")


def measure(n: int, rng_seed: int) -> dict[str, Any]:
    load_litellm()
    out = asyncio.run(try_all(cases(n, rng_seed)))
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}, litellm {version('litellm')}",
        "answers": out.n_answers,
        "crashes": out.crashes,
        "hangs": out.hangs,
        "of_another_kind_than_they_should_be": out.untyped,
        "calls": out.n_calls,
        "with_more_calls_than_they_are_worth": out.too_dear,
        "slowest_s": round(out.slowest_s, 2),
        "kinds": dict(out.kinds.most_common()),
        "is_met": not (out.crashes or out.hangs or out.untyped or out.too_dear),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=200)
    parser.add_argument("--rng-seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    given = parser.parse_args()
    figures = json.dumps(measure(given.answers, given.rng_seed), indent=2)
    print(figures)
    if given.json:
        given.json.write_text(figures + "\n")


if __name__ == "__main__":
    main()
