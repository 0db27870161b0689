"""Recipes: how the fastest program of a problem came from the first one, in steps that another program can follow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pydantic import Field

from db.frozen import Record
from db.knowledge import NAMED_PROBLEMS
from db.queries import Question
from db.records import LatencyKind, PrecisionClass

LEAST_OCTAVES = 0.07
"""What is worth following: 5% of latency."""

CREDIBLE_OCTAVES = 64.0
"""No program gains more: what says so is damaged."""

N_WINNERS = 3
"""Programs of each problem, GPU and kind of latency that recipes are taken from: the fastest."""


class Setting(Record):
    """The value of one knob of one kernel: "num_warps", "num_stages" or "tile"."""

    kernel: int = Field(ge=0)  # which of the program's kernels, in the order of their launches
    kind: str
    shape: str = ""  # of what the kernel computes on; a tile means something else in each
    place: int = Field(default=0, ge=0)  # which of the kernel's knobs of this kind
    value: int = Field(ge=1)


class Recipe(Record):
    """What was done to a program of a problem, in order, and what the result's knobs stand at.

    `techniques` has rewrites alone: what sets a knob shows in `settings`, wherever on the way it was set.
    """

    problem: str
    state: str = ""  # key of the first program's performance state; empty where nobody knew it
    latency_kind: LatencyKind
    precision: PrecisionClass = PrecisionClass.REFERENCE  # of the run that judged the winner
    hardware_id: str
    techniques: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()
    octaves: float = Field(ge=LEAST_OCTAVES, le=CREDIBLE_OCTAVES)  # gained over the first program
    at_s: float = 0.0  # seconds since the epoch, of the verdict on the winner

    def suits(self, precision: PrecisionClass) -> bool:
        """Whether a search of this precision class may follow it: what led to the stricter class leads to both."""
        return precision in (self.precision, PrecisionClass.RELAXED)


class Step(NamedTuple):
    """One verdict on a program, with how the program was made. What a winner came from is a chain of them."""

    program_id: str
    problem_id: str
    hardware_id: str
    latency_kind: str | None
    precision: str
    latency_us: float | None
    state: str
    technique: str
    detail: str
    parents: tuple[str, ...]
    at_s: float  # seconds since the epoch


def winner_rows(without: Sequence[str], until_s: float | None, latency_kind: LatencyKind | None) -> Question:
    """The sequence numbers of the fastest programs, at most `N_WINNERS` of each grid; of equals those that were judged
    first: DuckDB's threads would choose others every time, and runs in order end alike."""
    conditions, parameters = ["rank_us IS NOT NULL", "duplicate_of = ''"], list[Any]()
    if without:
        conditions.append(f"problem_id NOT IN ({NAMED_PROBLEMS})")
        parameters += [list(without)] * 2
    for column, value in (("created_s <", until_s), ("latency_kind =", latency_kind)):
        if value is not None:
            conditions.append(f"{column} ?")
            parameters.append(value)
    sql = (
        f"SELECT arg_min(seq, rank_us) AS seq FROM evaluations WHERE {' AND '.join(conditions)}"
        " GROUP BY grid, program_id"
        " QUALIFY row_number() OVER (PARTITION BY grid ORDER BY min(rank_us), min(seq))"
        f" <= {N_WINNERS} ORDER BY seq"
    )
    return Question(sql, parameters)


def step_rows(program_ids: Iterable[str]) -> Question:
    """What `step_of` reads: every verdict on some programs, in order of insertion."""
    columns = (
        "program_id, problem_id, hardware_id, latency_kind, precision, latency_us, coalesce(state, ''), technique,"
        " lineage ->> '$.detail', parents, created_s"
    )
    wanted = "program_id IN (SELECT unnest(?::VARCHAR[]))"
    return Question(f"SELECT {columns} FROM evaluations WHERE {wanted} ORDER BY seq", [list(program_ids)])


def step_of(row: Sequence[Any]) -> Step:
    return Step(*row)._replace(parents=tuple(row[Step._fields.index("parents")]))


def imported_recipes(until_s: float | None) -> Question:
    """The recipes that were brought in from elsewhere, before a moment where one is given."""
    if until_s is None:
        return Question("SELECT record FROM imported_recipes ORDER BY rowid", [])
    moment = "make_timestamp(CAST(? * 1e6 AS BIGINT))"
    return Question(f"SELECT record FROM imported_recipes WHERE created_at < {moment} ORDER BY rowid", [until_s])
