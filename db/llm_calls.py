"""Calls of language models: what each came to, kept so that a run can say what its money went to."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from db.frozen import Record
from db.queries import Question

ANSWERED = "answered"
CUT_OFF = "cut_off"


class LlmCall(Record):
    """One call to one model. A request that was tried three times is three calls.

    `outcome` is `answered`, `cut_off` (answered, and stopped by the limit of tokens), or the kind of the failure.
    """

    call_id: str
    run_id: str
    island: int = Field(ge=0)
    operator: str
    model: str
    prompt_hash: str
    n_tokens_in: int = Field(ge=0)
    n_tokens_out: int = Field(ge=0)
    has_estimated_tokens: bool = False  # the server did not say how many
    cost_usd: float | None = Field(ge=0)  # None: the model is unpriced
    seconds: float = Field(ge=0)
    outcome: str
    reason: str = ""  # why it failed; never a key
    created_at: float = Field(default_factory=time.time)  # seconds since the epoch


class LlmTotal(Record):
    """The calls of one model for one operator. Answers that were cut off count as answered too."""

    model: str
    operator: str
    n_calls: int
    n_answered: int
    n_cut_off: int
    n_tokens_in: int
    n_tokens_out: int
    cost_usd: float | None  # None: the model is unpriced
    seconds: float  # of all calls, as if one had come after the other
    mean_s: float


COLUMNS = {
    "call_id": "VARCHAR",
    "run_id": "VARCHAR",
    "island": "INTEGER",
    "operator": "VARCHAR",
    "model": "VARCHAR",
    "prompt_hash": "VARCHAR",
    "n_tokens_in": "BIGINT",
    "n_tokens_out": "BIGINT",
    "has_estimated_tokens": "BOOLEAN",
    "cost_usd": "DOUBLE",
    "seconds": "DOUBLE",
    "outcome": "VARCHAR",
    "reason": "VARCHAR",
    "created_s": "DOUBLE",
}
INSERT = (
    f"INSERT INTO llm_calls ({', '.join(COLUMNS)})"
    f" SELECT {', '.join(f'unnest(?::{kind}[])' for kind in COLUMNS.values())} ON CONFLICT DO NOTHING"
)
_TOTALS = """
SELECT
    model, operator, count(*), count(*) FILTER (outcome IN ('answered', 'cut_off')),
    count(*) FILTER (outcome = 'cut_off'), sum(n_tokens_in)::BIGINT, sum(n_tokens_out)::BIGINT, sum(cost_usd),
    sum(seconds), avg(seconds)
FROM llm_calls
WHERE {condition}
GROUP BY model, operator
ORDER BY sum(cost_usd) DESC NULLS LAST, sum(seconds) DESC, model, operator
"""


def columns_of(calls: Sequence[LlmCall]) -> list[list[Any]]:
    """The parameters of `INSERT`: one list for each of `COLUMNS`."""
    fields = ["created_at" if name == "created_s" else name for name in COLUMNS]
    return [[getattr(call, field) for call in calls] for field in fields]


def calls_of(run_id: str | None) -> Question:
    """What `call_of` reads, the oldest first; of all runs where none is named."""
    condition, parameters = _of_run(run_id)
    return Question(
        f"SELECT {', '.join(COLUMNS)} FROM llm_calls WHERE {condition} ORDER BY created_s, rowid", parameters
    )


def call_of(row: Sequence[Any]) -> LlmCall:
    values = dict(zip(COLUMNS, row, strict=True))
    return LlmCall(created_at=values.pop("created_s"), **values)


def totals_of(run_id: str | None) -> Question:
    """What `total_of` reads: the dearest first, then the slowest."""
    condition, parameters = _of_run(run_id)
    return Question(_TOTALS.format(condition=condition), parameters)


def total_of(row: Sequence[Any]) -> LlmTotal:
    return LlmTotal(**dict(zip(LlmTotal.model_fields, row, strict=True)))


def _of_run(run_id: str | None) -> tuple[str, list[Any]]:
    return ("TRUE", []) if run_id is None else ("run_id = ?", [run_id])
