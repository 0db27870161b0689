"""Opinions: what a judge model says that a program leaves out or fakes. Advice; no gate reads it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pydantic import Field

from db.frozen import Record
from db.queries import Question
from db.reflections import add_rows

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


class Concern(Record):
    """One thing that a judge holds against a program. `line` counts from 1; 0: none in particular."""

    kind: str = Field(min_length=1)  # left_out, faked, fragile
    line: int = Field(ge=0)
    what: str


class ProgramOpinion(Record):
    """What a model thinks of a program. No concerns: it found nothing."""

    program_id: str
    run_id: str
    concerns: tuple[Concern, ...] = ()
    advice: str = ""
    model: str = ""
    created_at: float = Field(default_factory=time.time)  # seconds since the epoch


_COLUMNS = {
    "run_id": "VARCHAR",
    "program_id": "VARCHAR",
    "position": "INTEGER",
    "kind": "VARCHAR",
    "line": "INTEGER",
    "what": "VARCHAR",
    "advice": "VARCHAR",
    "model": "VARCHAR",
    "created_s": "DOUBLE",
}
_NOTHING = ("", 0, "")  # stands for a judge that has no concern


def store(connection: DuckDBPyConnection, opinions: Sequence[ProgramOpinion]) -> None:
    """Writes opinions; a run has one on each program, the first that it got."""
    rows = [row for one in opinions for row in _rows_of(one)]
    add_rows(connection, "opinions", _COLUMNS, rows)


def opinions_on(program_id: str | None, run_id: str | None) -> Question:
    """What `opinions_of` reads: on one program or on all, of one run or of all, the newest opinion first."""
    asked = [(name, value) for name, value in (("program_id", program_id), ("run_id", run_id)) if value is not None]
    where = " AND ".join(["TRUE", *(f"{name} = ?" for name, _ in asked)])
    order = "created_s DESC, run_id, program_id, position"
    sql = f"SELECT {', '.join(_COLUMNS)} FROM opinions WHERE {where} ORDER BY {order}"
    return Question(sql, [value for _, value in asked])


def opinions_of(rows: Iterable[Sequence[Any]]) -> list[ProgramOpinion]:
    """Opinions from rows, in their order; the rows of one stand together."""
    dicts = [dict(zip(_COLUMNS, row, strict=True)) for row in rows]
    groups = groupby(dicts, key=lambda row: (row["run_id"], row["program_id"]))
    return [_opinion(list(group)) for _, group in groups]


def _rows_of(opinion: ProgramOpinion) -> list[tuple[Any, ...]]:
    concerns = [(one.kind, one.line, one.what) for one in opinion.concerns] or [_NOTHING]
    return [
        (opinion.run_id, opinion.program_id, k, *concern, opinion.advice, opinion.model, opinion.created_at)
        for k, concern in enumerate(concerns)
    ]


def _opinion(rows: Sequence[dict[str, Any]]) -> ProgramOpinion:
    first = rows[0]
    concerns = [Concern(kind=row["kind"], line=row["line"], what=row["what"]) for row in rows if row["kind"]]
    return ProgramOpinion(
        program_id=first["program_id"],
        run_id=first["run_id"],
        concerns=tuple(concerns),
        advice=first["advice"],
        model=first["model"],
        created_at=first["created_s"],
    )
