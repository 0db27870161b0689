"""What attempts taught: how often each technique was tried in each performance state, and what it gained.

Evidence is sums, so it adds up: over runs, over archives, over whatever part of its key somebody does not care about.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pydantic import Field, model_validator

from db.frozen import Record
from db.moves import move_of
from db.queries import Question
from db.records import LatencyKind, Verdict

MOST_OCTAVES = 2.0
"""Gains and losses count up to a factor of four: one lucky rewrite must not outweigh a hundred attempts."""

IMPROVED_OCTAVES = 0.0145
"""What counts as an improvement: 1% of latency."""

KEPT_OCTAVES = -0.02
"""A program that lost no more than this (1.4%) is as fast as its parent, within noise."""


class TechniqueEvidence(Record):
    """What came of trying one technique, in one way, on programs in one state.

    An octave is a factor of two in latency. A failed program gained nothing: it counts as a try alone.
    """

    technique: str
    state: str = ""  # key of the parents' performance state; empty where nobody knew it
    move: str = ""  # what was changed, as `db.moves` says it
    previous: str = ""  # the technique that had made the parents
    latency_kind: LatencyKind
    hardware_id: str
    n_tried: int = Field(ge=1)
    n_passed: int = Field(ge=0)  # correct, in the precision that their run had asked for
    n_kept: int = Field(ge=0)  # and not slower than the parent beyond noise
    n_improved: int = Field(ge=0)  # and faster by 1%
    octaves: float = 0.0  # sum over what passed, losses included, each within +-2
    squared_octaves: float = 0.0
    gained_octaves: float = 0.0  # sum over what improved
    n_predicted: int = 0
    predicted_octaves: float = 0.0  # sum over what was predicted
    predicted_gain: float = 0.0  # what those tries gained
    squared_error: float = 0.0  # of prediction against gain
    last_at_s: float = 0.0  # seconds since the epoch, of the last verdict

    @model_validator(mode="after")
    def _counts_nest(self) -> TechniqueEvidence:
        counts = (self.n_tried, self.n_passed, self.n_kept, self.n_improved)
        if list(counts) != sorted(counts, reverse=True):
            raise ValueError(f"tried, passed, kept and improved must not grow, got {counts} for {self.technique!r}")
        return self


class Asked(NamedTuple):
    """Which attempts are meant. None means all; problems by name or id."""

    problems: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    until_s: float | None = None  # what was judged before this moment


KEY = ("technique", "state", "move", "previous", "latency_kind", "hardware_id")
_COLUMNS = tuple(TechniqueEvidence.model_fields)
NAMED_PROBLEMS = (  # takes the names twice
    "SELECT problem_id FROM problems WHERE list_contains(?::VARCHAR[], name) OR list_contains(?::VARCHAR[], problem_id)"
)

DETAILS = Question("SELECT DISTINCT technique, lineage ->> 'detail' FROM evaluations WHERE technique != ''", [])
"""Everything that operators ever said they did: what there are moves for."""


def imported(until_s: float | None) -> Question:
    """The records that were brought in from elsewhere, before a moment where one is given."""
    if until_s is None:
        return Question("SELECT record FROM imported_knowledge ORDER BY rowid", [])
    moment = "make_timestamp(CAST(? * 1e6 AS BIGINT))"
    return Question(f"SELECT record FROM imported_knowledge WHERE created_at < {moment} ORDER BY rowid", [until_s])


def _sum(expression: str) -> str:
    """Rounded, so that the order in which rows are added up shows nowhere."""
    return f"round(coalesce(sum({expression}), 0), 9)"


# a failed program has no latency, so its run says which kind it would have had
_EVIDENCE = f"""
WITH tried AS (
    SELECT
        a.technique, coalesce(a.state, '') AS state, coalesce(moves.move, '') AS move,
        coalesce(a.previous, '') AS previous, coalesce(runs.latency_kind, a.latency_kind) AS latency_kind,
        a.hardware_id, a.predicted_octaves AS predicted, a.created_s,
        CASE WHEN a.octaves IS NOT NULL AND child.precision = coalesce(runs.precision, child.precision)
             THEN greatest(-{MOST_OCTAVES}, least({MOST_OCTAVES}, a.octaves)) END AS octaves
    FROM attempts AS a
    JOIN evaluations AS child USING (seq)
    LEFT JOIN runs ON runs.run_id = a.run_id
    LEFT JOIN (
        SELECT unnest(?::VARCHAR[]) AS technique, unnest(?::VARCHAR[]) AS detail, unnest(?::VARCHAR[]) AS move
    ) AS moves ON moves.technique = a.technique AND moves.detail = a.detail
    WHERE {{condition}}
), earned AS (
    SELECT *, CASE WHEN octaves >= {IMPROVED_OCTAVES} THEN octaves ELSE 0 END AS gain FROM tried
)
SELECT
    technique, state, move, previous, latency_kind, hardware_id, count(*), count(octaves),
    count(*) FILTER (octaves >= {KEPT_OCTAVES}), count(*) FILTER (octaves >= {IMPROVED_OCTAVES}),
    {_sum("octaves")}, {_sum("octaves * octaves")}, {_sum("gain")}, count(predicted), {_sum("predicted")},
    {_sum("CASE WHEN predicted IS NOT NULL THEN gain END")}, {_sum("(predicted - gain) ** 2")}, max(created_s)
FROM earned
WHERE latency_kind IS NOT NULL
GROUP BY technique, state, move, previous, latency_kind, hardware_id
ORDER BY technique, state, move, previous, latency_kind, hardware_id
"""


def evidence_for(asked: Asked, details: Iterable[Sequence[str]]) -> Question:
    """The rows that `evidence_of` reads, moves being those of `details`: techniques with what they said they did."""
    known = [(technique, detail, move_of(technique, detail)) for technique, detail in details if detail]
    columns = [list(column) for column in zip(*known, strict=True)] if known else [[], [], []]
    conditions, parameters = ["TRUE"], list[Any](columns)
    if asked.problems is not None:
        conditions.append(f"a.problem_id IN ({NAMED_PROBLEMS})")
        parameters += [list(asked.problems)] * 2
    if asked.without:
        conditions.append(f"a.problem_id NOT IN ({NAMED_PROBLEMS})")
        parameters += [list(asked.without)] * 2
    if asked.until_s is not None:
        conditions.append("a.created_s < ?")
        parameters.append(asked.until_s)
    return Question(_EVIDENCE.format(condition=" AND ".join(conditions)), parameters)


class JudgedAttempt(NamedTuple):
    """One attempt, with what the judge said of the parent and of the child. Octaves are None for what failed."""

    candidate_id: str
    technique: str
    previous: str
    detail: str
    diagnosis: str
    state: str
    predicted_octaves: float | None
    octaves: float | None
    parent: Verdict
    child: Verdict


def latest_attempts(state: str, technique: str, limit: int) -> Question:
    """What `judged_attempt_of` reads of the last attempts, the latest first: of states whose key holds a text."""
    asked = [("contains(a.state, ?)", state), ("a.technique = ?", technique)]
    conditions = " AND ".join(["TRUE", *(sql for sql, value in asked if value)])
    sql = f"""
WITH latest AS (
    SELECT * FROM attempts AS a WHERE {conditions} ORDER BY seq DESC LIMIT {int(limit)}
)
SELECT
    latest.candidate_id, latest.technique, coalesce(latest.previous, ''), coalesce(latest.detail, ''),
    coalesce(child.lineage ->> '$.diagnosis', ''), coalesce(latest.state, ''),
    latest.predicted_octaves, latest.octaves, child.verdict, first.verdict
FROM latest
JOIN evaluations AS child ON child.seq = latest.seq
JOIN (
    SELECT run_id, program_id, min(seq) AS seq FROM evaluations
    WHERE latency_us IS NOT NULL AND operator != 'confirm' GROUP BY run_id, program_id
) AS parent ON parent.run_id = latest.run_id AND parent.program_id = child.parents[1]
JOIN evaluations AS first ON first.seq = parent.seq
ORDER BY latest.seq DESC
"""
    return Question(sql, [value for _, value in asked if value])


def judged_attempt_of(row: Sequence[Any]) -> JudgedAttempt:
    *facts, child, parent = row
    return JudgedAttempt._make([*facts, Verdict.model_validate_json(parent), Verdict.model_validate_json(child)])


def evidence_of(row: Sequence[Any]) -> TechniqueEvidence:
    return TechniqueEvidence(**dict(zip(_COLUMNS, row, strict=True)))


def summed(evidence: Iterable[TechniqueEvidence]) -> list[TechniqueEvidence]:
    """One record for each key, in the order in which keys first come."""
    groups: dict[tuple[Any, ...], TechniqueEvidence] = {}
    for one in evidence:
        key = tuple(getattr(one, name) for name in KEY)
        groups[key] = added(groups[key], one) if key in groups else one
    return list(groups.values())


def added(one: TechniqueEvidence, other: TechniqueEvidence) -> TechniqueEvidence:
    """The sum of two, under the key of the first."""
    sums = {name: getattr(one, name) + getattr(other, name) for name in _COLUMNS if name not in (*KEY, "last_at_s")}
    return one.model_copy(update={**sums, "last_at_s": max(one.last_at_s, other.last_at_s)})
