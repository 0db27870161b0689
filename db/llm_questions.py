"""Questions for language models that wait for somebody to carry them: kept with the run until their answers are back.

The archive does not know what a request, a model or a dialogue is: they are JSON here, and records to whoever asked.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from pydantic import Field

from db.frozen import Record
from db.queries import Question


class QuestionStatus(StrEnum):
    WAITING = "waiting"
    ANSWERED = "answered"  # the answer is here, and its island has not heard it
    CLOSED = "closed"


class LlmQuestion(Record):
    """A question that was written down instead of asked. Its id is unique among all runs."""

    question_id: str
    run_id: str
    island: int = Field(ge=0)
    dialogue_id: str
    operator: str
    model: str
    prompt_hash: str
    status: QuestionStatus = QuestionStatus.WAITING
    request: dict[str, Any]
    spec: dict[str, Any]
    answer: dict[str, Any] | None = None
    created_at: float = Field(default_factory=time.time)  # seconds since the epoch


_COLUMNS = {
    "question_id": "VARCHAR",
    "run_id": "VARCHAR",
    "island": "INTEGER",
    "dialogue_id": "VARCHAR",
    "operator": "VARCHAR",
    "model": "VARCHAR",
    "prompt_hash": "VARCHAR",
    "status": "VARCHAR",
    "request": "JSON",
    "spec": "JSON",
    "answer": "JSON",
    "created_s": "DOUBLE",
}
_JSON = {name for name, kind in _COLUMNS.items() if kind == "JSON"}
INSERT = (
    f"INSERT INTO llm_questions ({', '.join(_COLUMNS)})"
    f" SELECT {', '.join(f'unnest(?::{kind}[])' for kind in _COLUMNS.values())} ON CONFLICT DO NOTHING"
)
CLOSE = (
    f"UPDATE llm_questions SET status = '{QuestionStatus.CLOSED}' WHERE question_id IN (SELECT unnest(?::VARCHAR[]))"
)
ANSWER = (
    f"UPDATE llm_questions SET status = '{QuestionStatus.ANSWERED}', answer = ?"
    f" WHERE question_id = ? AND status = '{QuestionStatus.WAITING}'"
)
KEEP_DIALOGUES = "INSERT OR REPLACE INTO llm_dialogues VALUES (?, ?, ?)"


def columns_of(questions: Sequence[LlmQuestion]) -> list[list[Any]]:
    """The parameters of `INSERT`: one list for each column."""
    return [[_stored(name, one) for one in questions] for name in _COLUMNS]


def dialogue_rows(run_id: str, dialogues: Mapping[int, Any]) -> list[list[Any]]:
    """The parameters of `KEEP_DIALOGUES`, for each island."""
    return [[run_id, island, json.dumps(state)] for island, state in dialogues.items()]


def questions_of(run_id: str) -> Question:
    """What `question_of` reads, in the order in which they were asked."""
    sql = f"SELECT {', '.join(_COLUMNS)} FROM llm_questions WHERE run_id = ? ORDER BY created_s, question_id"
    return Question(sql, [run_id])


def question_of(row: Sequence[Any]) -> LlmQuestion:
    values = dict(zip(_COLUMNS, row, strict=True))
    for name in _JSON:
        values[name] = None if values[name] is None else json.loads(values[name])
    return LlmQuestion(created_at=values.pop("created_s"), **values)


def dialogues_of(run_id: str) -> Question:
    """Island and state of its dialogues, as JSON."""
    return Question("SELECT island, record FROM llm_dialogues WHERE run_id = ? ORDER BY island", [run_id])


def last_waiting() -> Question:
    """The run that was added last among those with a question that is not closed."""
    sql = (
        "SELECT run_id FROM runs WHERE run_id IN (SELECT run_id FROM llm_questions WHERE status != 'closed')"
        " ORDER BY rowid DESC LIMIT 1"
    )
    return Question(sql, [])


def of_status(questions: Iterable[LlmQuestion], *statuses: QuestionStatus) -> list[LlmQuestion]:
    return [one for one in questions if one.status in statuses]


def _stored(name: str, one: LlmQuestion) -> Any:
    if name == "created_s":
        return one.created_at
    value = getattr(one, name)
    return json.dumps(value) if name in _JSON and value is not None else value
