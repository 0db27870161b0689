"""The questions that an archive answers, as SQL, and the records that its answers are.

Three habits keep them fast at a million programs: a question about elites groups the few rows of `cell_bests`, by two
integers; any other first finds the sequence numbers of the rows it wants among narrow columns; and only then are the
long texts of those rows read, by index.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from db.records import (
    Candidate,
    EntryPoint,
    Evaluation,
    LatencyKind,
    Lineage,
    Outcome,
    PrecisionClass,
    Program,
    Record,
    Verdict,
)


class Elite(Record):
    """The best program of a cell, with where it was found. `lineage` is that of the candidate that holds the cell.

    The verdict comes without its captures: those of hundreds of cells would be long. `evaluations_of` has them.
    """

    program: Program
    verdict: Verdict
    run_id: str
    island: int
    problem_name: str
    lineage: Lineage


class LineageRow(Record):
    """One ancestor, as it was first proposed. `generation` is 0 for a program whose parents are not in the archive."""

    generation: int
    program_id: str
    parents: tuple[str, ...]
    operator: str
    technique: str
    detail: str
    diagnosis: str
    run_id: str
    island: int
    outcome: Outcome
    reason: str
    latency_kind: LatencyKind | None
    latency_us: float | None
    speedup: float | None


class Table(Record):
    """The answer to a question in SQL. Values are what JSON can say: times are text, decimals are floats."""

    columns: list[str]
    rows: list[tuple[Any, ...]]


class Question(NamedTuple):
    """SQL with its parameters."""

    sql: str
    parameters: list[Any]


class Scope(NamedTuple):
    """Which evaluations are meant. None means all."""

    problem_ids: tuple[str, ...] | None = None
    run_id: str | None = None
    island: int | None = None
    hardware_id: str | None = None
    precision: PrecisionClass | None = None
    latency_kind: LatencyKind | None = None

    def where(self) -> Question:
        """The condition ` AND ... AND ...` on `cell_bests` or `evaluations`, or nothing."""
        sql = ""
        parameters: list[Any] = []
        if self.problem_ids is not None:
            sql += f" AND problem_id IN ({', '.join('?' * len(self.problem_ids)) or 'NULL'})"
            parameters += self.problem_ids
        for column in ("run_id", "island", "hardware_id", "precision", "latency_kind"):
            value = getattr(self, column)
            if value is not None:
                sql += f" AND {column} = ?"
                parameters.append(value)
        return Question(sql, parameters)


# ------------------------------------------------------------------------------------------------------------ elites


def elite_rows(scope: Scope, limit: int | None) -> Question:
    """The sequence numbers of the fastest correct program of every cell, fastest first."""
    condition, parameters = scope.where()
    sql = (
        f"SELECT arg_min(seq, rank_us) FROM cell_bests WHERE true{condition} GROUP BY grid, cell ORDER BY min(rank_us)"
    )
    return Question(sql + (f" LIMIT {int(limit)}" if limit is not None else ""), parameters)


def best_row(scope: Scope) -> Question:
    """The sequence number of the lowest latency within one grid.

    Latencies of different grids say nothing about each other. So where the scope leaves several, the grid is chosen
    first: measured before modelled, reference before relaxed, then the one that was judged last.
    """
    condition, parameters = scope.where()
    sql = (
        "SELECT arg_min(seq, rank_us) FROM cell_bests"
        f" WHERE true{condition} GROUP BY grid"
        " ORDER BY any_value(latency_kind) = 'measured' DESC, any_value(precision) = 'reference' DESC, max(seq) DESC"
        " LIMIT 1"
    )
    return Question(sql, parameters)


def parent_rows(scope: Scope, n: int, draw: int) -> Question:
    """The sequence numbers of `n` elites, drawn without replacement in proportion to their speed-up.

    Weighted reservoir sampling (Efraimidis and Spirakis 2006): the n smallest of -ln(u) / weight. `draw` decides u,
    so equal draws from an equal archive are equal.
    """
    condition, parameters = scope.where()
    sql = (
        "WITH cells AS (SELECT arg_min(seq, rank_us) AS seq, arg_min(speedup, rank_us) AS speedup FROM cell_bests"
        f" WHERE true{condition} GROUP BY grid, cell)"
        " SELECT seq FROM cells ORDER BY -ln((hash(seq, ?) % 9007199254740992 + 1) / 9007199254740993) / speedup"
        f" LIMIT {int(n)}"
    )
    return Question(sql, [*parameters, draw])


def elites_at(seqs: Iterable[int]) -> Question:
    """What `elite_of` reads, for rows that are known by number. The index on `seq` makes this cheap."""
    columns = "seq, island, entry_point, source, lineage, verdict"
    return Question(f"SELECT {columns} FROM evaluations WHERE seq IN ({_numbers(seqs)})", [])


def elite_of(row: Sequence[Any], problem_names: dict[str, str]) -> Elite:
    _, island, entry_point, source, lineage, text = row
    verdict = Verdict.model_validate_json(text)
    return Elite(
        program=Program(
            program_id=verdict.program_id,
            problem_id=verdict.problem_id,
            entry_point=EntryPoint(entry_point),
            source=source,
        ),
        verdict=verdict,
        run_id=verdict.run_id,
        island=island,
        problem_name=problem_names.get(verdict.problem_id, ""),
        lineage=Lineage.model_validate_json(lineage),
    )


def _numbers(seqs: Iterable[int]) -> str:
    return ", ".join(str(int(seq)) for seq in seqs)


# ------------------------------------------------------------------------------------------------------- evaluations


# the captures put back into the object that they were taken from
WHOLE_VERDICT = """left(verdict, -1) || ',"captures":' || captures || '}'"""


# of one run, without what its island judged itself; parameters: run and island, three times
PARENTS_ABROAD = """
seq IN (
    SELECT min(seq) FROM evaluations
    WHERE run_id = ? AND island != ? AND outcome = 'correct' AND operator != 'confirm'
        AND program_id IN (SELECT unnest(parents) FROM evaluations WHERE run_id = ? AND island = ?)
        AND program_id NOT IN (SELECT program_id FROM evaluations WHERE run_id = ? AND island = ?)
    GROUP BY program_id
)"""


def evaluations_where(condition: str, parameters: list[Any]) -> Question:
    """What `evaluation_of` reads, in order of insertion."""
    columns = f"candidate_id, run_id, problem_id, island, source, entry_point, lineage, {WHOLE_VERDICT}, created_s"
    return Question(f"SELECT {columns} FROM evaluations WHERE {condition} ORDER BY seq", parameters)


def evaluation_of(row: Sequence[Any]) -> Evaluation:
    candidate_id, run_id, problem_id, island, source, entry_point, lineage, verdict, created_s = row
    candidate = Candidate(
        candidate_id=candidate_id,
        run_id=run_id,
        problem_id=problem_id,
        island=island,
        source=source,
        entry_point=EntryPoint(entry_point),
        lineage=Lineage.model_validate_json(lineage),
    )
    return Evaluation(candidate=candidate, verdict=Verdict.model_validate_json(verdict), created_at=created_s)


def rows_on(column: str, value: str) -> Question:
    """Whether anything has `value` in `column`, an indexed one. The usual answer is no, and costs little."""
    return Question(f"SELECT seq FROM evaluations WHERE {column} = ? LIMIT 1", [value])


def verdicts_on(column: str, value: str, problem_id: str, hardware_id: str) -> Question:
    """Verdicts, themselves no duplicates, on what has `value` in `column` (program_id or fingerprint), latest first.

    An index answers a question about its column alone: with a second condition beside it, DuckDB reads the table.
    """
    sql = (
        f"WITH found AS MATERIALIZED (SELECT seq, problem_id, hardware_id, duplicate_of FROM evaluations"
        f" WHERE {column} = ?)"
        f" SELECT run_id, precision, latency_kind, {WHOLE_VERDICT} FROM evaluations WHERE seq IN"
        " (SELECT seq FROM found WHERE problem_id = ? AND hardware_id = ? AND duplicate_of = '') ORDER BY seq DESC"
    )
    return Question(sql, [value, problem_id, hardware_id])


# ----------------------------------------------------------------------------------------------------------- lineage

# UNION without ALL ends even where two programs were each made from the other
LINEAGE = """
WITH RECURSIVE
    proposed AS MATERIALIZED (
        SELECT program_id, arg_min(parents, seq) AS parents, min(seq) AS seq FROM evaluations GROUP BY program_id
    ),
    ancestors AS (
        SELECT program_id, parents, seq FROM proposed WHERE program_id = ?
        UNION
        SELECT p.program_id, p.parents, p.seq
        FROM (SELECT DISTINCT unnest(parents) AS program_id FROM ancestors) JOIN proposed AS p USING (program_id)
    )
SELECT seq FROM ancestors ORDER BY seq
"""


def lineage_at(seqs: Iterable[int]) -> Question:
    """What `lineage_of` reads, oldest first."""
    columns = (
        "program_id, parents, operator, technique, lineage ->> '$.detail',"
        " coalesce(lineage ->> '$.diagnosis', ''), run_id, island, outcome, reason, latency_kind, latency_us, speedup"
    )
    return Question(f"SELECT {columns} FROM evaluations WHERE seq IN ({_numbers(seqs)}) ORDER BY seq", [])


def lineage_of(rows: Iterable[Sequence[Any]]) -> list[LineageRow]:
    generations: dict[str, int] = {}
    answer = []
    for row in rows:
        generation = 1 + max((generations[p] for p in row[1] if p in generations), default=-1)
        generations[row[0]] = generation
        names = list(LineageRow.model_fields)[1:]
        answer.append(LineageRow(generation=generation, **dict(zip(names, row, strict=True))))
    return answer
