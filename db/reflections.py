"""What reflection taught: lessons, why attempts gained what they did, and techniques that the catalogue lacks.

A language model wrote all of it. It advises operators; it decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import Field

from db.frozen import Record
from db.profile import Bottleneck, KernelKind
from db.queries import Question
from db.techniques import AppliedBy, CatalogueEntry, Text

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


class Lesson(Record):
    """One sentence of an island's memory. `position` counts from the oldest."""

    run_id: str
    island: int = Field(ge=0)
    position: int = Field(ge=0)
    text: str = Field(min_length=1)
    created_at: float = Field(default_factory=time.time)  # seconds since the epoch, of the last reflection


class Explanation(Record):
    """Why an attempt gained what it did, as a model sees it. None: it does not say."""

    candidate_id: str
    run_id: str
    island: int = Field(ge=0)
    diagnosis_was_right: bool | None = None
    fix_worked: bool | None = None
    cause: str
    avoid: str = ""
    try_next: str = ""
    model: str = ""
    created_at: float = Field(default_factory=time.time)  # seconds since the epoch


class LearntTechnique(Record):
    """A technique that a run came upon, described so that another can try it."""

    run_id: str
    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    changes: Text
    instruction: Text
    addresses: tuple[Bottleneck, ...] = Field(min_length=1)
    kinds: tuple[KernelKind, ...] = ()  # empty: every kind
    preconditions: tuple[Text, ...] = ()
    risks: tuple[Text, ...] = ()
    model: str = ""
    created_at: float = Field(default_factory=time.time)  # seconds since the epoch

    def as_entry(self) -> CatalogueEntry:
        """As the catalogue has its own: applied by language models, known from the run that learnt it."""
        return CatalogueEntry(
            name=self.name,
            changes=self.changes,
            addresses=self.addresses,
            kinds=self.kinds,
            preconditions=self.preconditions,
            risks=self.risks,
            source=f"learnt by run {self.run_id}",
            learnt_by=self.run_id,
            applied_by=AppliedBy(instruction=self.instruction),
        )


class Reflection(Record):
    """What one reflection of an island leaves: the whole memory as it is now, and what is new."""

    run_id: str
    island: int = Field(ge=0)
    lessons: tuple[Lesson, ...] = ()
    explanations: tuple[Explanation, ...] = ()
    techniques: tuple[LearntTechnique, ...] = ()


class Wanted(NamedTuple):
    """Which records are meant: the newest first, those of runs on the problem `first` before all others."""

    run_id: str | None = None
    first: str = ""  # name or id of a problem
    until_s: float | None = None  # only what was written before this moment
    limit: int | None = None


EVERYTHING = Wanted()

_LESSONS = {
    "run_id": "VARCHAR",
    "island": "INTEGER",
    "position": "INTEGER",
    "text": "VARCHAR",
    "created_s": "DOUBLE",
}
_EXPLANATIONS = {
    "candidate_id": "VARCHAR",
    "run_id": "VARCHAR",
    "island": "INTEGER",
    "diagnosis_was_right": "BOOLEAN",
    "fix_worked": "BOOLEAN",
    "cause": "VARCHAR",
    "avoid": "VARCHAR",
    "try_next": "VARCHAR",
    "model": "VARCHAR",
    "created_s": "DOUBLE",
}
_TECHNIQUES = {
    "run_id": "VARCHAR",
    "name": "VARCHAR",
    "changes": "VARCHAR",
    "instruction": "VARCHAR",
    "addresses": "VARCHAR[]",
    "kinds": "VARCHAR[]",
    "preconditions": "VARCHAR[]",
    "risks": "VARCHAR[]",
    "model": "VARCHAR",
    "created_s": "DOUBLE",
}


# ------------------------------------------------------------------------------------------------------------- writing


def store(connection: DuckDBPyConnection, reflection: Reflection) -> None:
    """Writes a reflection: lessons in the place of the island's earlier ones, the rest where it is new."""
    connection.execute("DELETE FROM lessons WHERE run_id = ? AND island = ?", [reflection.run_id, reflection.island])
    lessons = [_row(one, _LESSONS) for one in reflection.lessons]
    add_rows(connection, "lessons", _LESSONS, lessons, has_key=False)
    add_rows(connection, "explanations", _EXPLANATIONS, [_row(one, _EXPLANATIONS) for one in reflection.explanations])
    add_rows(connection, "learnt_techniques", _TECHNIQUES, [_row(one, _TECHNIQUES) for one in reflection.techniques])


def add_rows(
    connection: DuckDBPyConnection,
    table: str,
    columns: dict[str, str],
    rows: Sequence[Sequence[Any]],
    *,
    has_key: bool = True,
) -> None:
    """Inserts rows into a table, those whose key is there already left out. `columns` are names with SQL types."""
    if rows:
        values = ", ".join(f"unnest(?::{kind}[])" for kind in columns.values())
        otherwise = " ON CONFLICT DO NOTHING" if has_key else ""
        sql = f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values}{otherwise}"
        connection.execute(sql, [list(column) for column in zip(*rows, strict=True)])


def _row(record: Record, columns: dict[str, str]) -> list[Any]:
    values = record.model_dump(mode="json")
    return [values["created_at" if name == "created_s" else name] for name in columns]


# ------------------------------------------------------------------------------------------------------------- reading


def lessons_wanted(wanted: Wanted) -> Question:
    """What `lesson_of` reads."""
    return _question("lessons", _LESSONS, wanted, "position DESC, island")


def explanations_wanted(wanted: Wanted) -> Question:
    """What `explanation_of` reads."""
    return _question("explanations", _EXPLANATIONS, wanted, "candidate_id DESC")


def techniques_wanted(wanted: Wanted) -> Question:
    """What `technique_of` reads."""
    return _question("learnt_techniques", _TECHNIQUES, wanted, "name")


def lesson_of(row: Sequence[Any]) -> Lesson:
    return Lesson(**_values(row, _LESSONS))


def explanation_of(row: Sequence[Any]) -> Explanation:
    return Explanation(**_values(row, _EXPLANATIONS))


def technique_of(row: Sequence[Any]) -> LearntTechnique:
    return LearntTechnique.model_validate(_values(row, _TECHNIQUES))


def _values(row: Sequence[Any], columns: dict[str, str]) -> dict[str, Any]:
    names = ["created_at" if name == "created_s" else name for name in columns]
    return dict(zip(names, row, strict=True))


def _question(table: str, columns: dict[str, str], wanted: Wanted, ties: str) -> Question:
    """Rows of a table in the order that is wanted; `ties` orders what was written at the same time."""
    conditions = [*_conditions(wanted)]
    parameters = [value for _, value in conditions]
    where = " AND ".join(["TRUE", *(sql for sql, _ in conditions)])
    nearest = ""
    if wanted.first:
        nearest = f"coalesce(run_id IN ({_RUNS_ON}), FALSE) DESC, "
        parameters += [wanted.first] * 2
    limit = "" if wanted.limit is None else f" LIMIT {int(wanted.limit)}"
    names = ", ".join(columns)
    return Question(
        f"SELECT {names} FROM {table} WHERE {where} ORDER BY {nearest}created_s DESC, {ties}{limit}", parameters
    )


_RUNS_ON = "SELECT run_id FROM runs JOIN problems USING (problem_id) WHERE name = ? OR problem_id = ?"


def _conditions(wanted: Wanted) -> Iterator[tuple[str, Any]]:
    if wanted.run_id is not None:
        yield "run_id = ?", wanted.run_id
    if wanted.until_s is not None:
        yield "created_s < ?", wanted.until_s
