"""What people ask an archive: the library twins of `evolve elites`, `best`, `show`, `diff` and `lineage`.

Each function takes an open archive (`db.live.open_for_reading`) and returns records.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from db.archive import Elite, LineageRow
from db.errors import NotFoundError
from db.records import LatencyKind, Lineage, PrecisionClass, Problem, Program, Record, Run, Verdict


class Rows(Protocol):
    """An answer to SQL."""

    columns: list[str]
    rows: list[tuple[Any, ...]]


class Reader(Protocol):
    """The read methods that an open archive has, whoever owns the file."""

    def runs(self) -> list[Run]: ...
    def run(self, run_id: str) -> Run: ...
    def problems(self) -> list[Problem]: ...
    def program(self, program_id_prefix: str) -> Program: ...
    def lineage(self, program_id: str) -> list[LineageRow]: ...
    def query(self, sql: str, params: Sequence[Any] = ()) -> Rows: ...
    def close(self) -> None: ...


class Appearance(Record):
    """One time that a program was proposed: by whom, and what the verdict was."""

    candidate_id: str
    run_id: str
    island: int
    lineage: Lineage
    verdict: Verdict


class ProgramStory(Record):
    """A program with everything that is known about it; the first appearance is the one that was judged."""

    program: Program
    problem_name: str
    appearances: tuple[Appearance, ...]


@contextmanager
def reading(path: Path) -> Iterator[Any]:
    """The archive at `path`, open for reading; through its owner while a run is live.

    Raises:
        ArchiveError: there is no archive at `path`, or it cannot be used.
    """
    from db.live import open_for_reading

    archive = open_for_reading(path)
    try:
        yield archive
    finally:
        archive.close()


def elites(
    archive: Any,
    *,
    problem: str | None = None,
    run_id: str | None = None,
    hardware_id: str | None = None,
    precision: PrecisionClass | None = None,
    latency_kind: LatencyKind | None = None,
    limit: int | None = None,
) -> list[Elite]:
    """The fastest program of every cell, grids apart, the fastest of a grid first.

    Raises:
        NotFoundError: `problem` or `run_id` is not in the archive.
    """
    _require_problem(archive, problem)
    if run_id is not None:
        archive.run(run_id)
    found: list[Elite] = archive.elites(
        problem=problem,
        run_id=run_id,
        hardware_id=hardware_id,
        precision=precision,
        latency_kind=latency_kind,
        limit=limit,
    )
    return sorted(found, key=lambda e: (*grid_of(e), _device_us(e)))


def grid_of(elite: Elite) -> tuple[str, str, str, str]:
    """Which grid an elite stands in: problem, hardware, latency kind, precision class. Grids never mix."""
    verdict = elite.verdict
    kind = verdict.latency.kind.value if verdict.latency else ""
    return elite.problem_name, verdict.hardware_id, kind, verdict.precision.value


def best(
    archive: Any,
    problem: str,
    *,
    hardware_id: str | None = None,
    precision: PrecisionClass = PrecisionClass.REFERENCE,
    latency_kind: LatencyKind | None = None,
) -> Elite:
    """The fastest correct program for a problem; a measured one goes before every modelled one.

    Raises:
        NotFoundError: no such problem, or no correct program for it under these conditions.
    """
    _require_problem(archive, problem)
    kinds = [latency_kind] if latency_kind else [LatencyKind.MEASURED, LatencyKind.MODELLED]
    for kind in kinds:
        found: Elite | None = archive.best(problem, hardware_id=hardware_id, precision=precision, latency_kind=kind)
        if found is not None:
            return found
    where = f" on {hardware_id}" if hardware_id else ""
    raise NotFoundError(
        f"no correct program for {problem!r} in {precision} precision{where}",
        f"search first: evolve run {problem}",
    )


def show(archive: Any, program_id: str) -> ProgramStory:
    """A program and every time that it was proposed, in order.

    Args:
        program_id: the id or an unambiguous beginning of it.

    Raises:
        NotFoundError: no such program, or several.
    """
    program: Program = archive.program(program_id)
    table = archive.query(_APPEARANCES_SQL, [program.program_id])
    names = {p.problem_id: p.name for p in archive.problems()}
    return ProgramStory(
        program=program,
        problem_name=names.get(program.problem_id, ""),
        appearances=tuple(_appearance(dict(zip(table.columns, row, strict=True))) for row in table.rows),
    )


_APPEARANCES_SQL = """
    SELECT candidate_id, run_id, island, operator, technique, parents, detail, verdict
    FROM evaluations WHERE program_id = ? ORDER BY duplicate_of <> '', seq
"""


def _appearance(row: dict[str, Any]) -> Appearance:
    lineage = Lineage(
        operator=row["operator"], technique=row["technique"], parents=tuple(row["parents"]), detail=row["detail"]
    )
    verdict = row["verdict"]
    return Appearance(
        candidate_id=row["candidate_id"],
        run_id=row["run_id"],
        island=row["island"],
        lineage=lineage,
        verdict=Verdict.model_validate(json.loads(verdict) if isinstance(verdict, str) else verdict),
    )


def diff(archive: Any, before: str, after: str, *, context: int = 3) -> list[str]:
    """A unified diff of two programs, line by line; empty when their sources are equal.

    Args:
        before, after: program ids or unambiguous beginnings.

    Raises:
        NotFoundError: no such program, or several.
    """
    old, new = archive.program(before), archive.program(after)
    return list(
        difflib.unified_diff(
            old.source.strip("\n").splitlines(),
            new.source.strip("\n").splitlines(),
            fromfile=old.program_id,
            tofile=new.program_id,
            lineterm="",
            n=context,
        )
    )


def lineage(archive: Any, program_id: str) -> list[LineageRow]:
    """The ancestors of a program, oldest first, itself last.

    Raises:
        NotFoundError: no such program, or several that begin so.
    """
    rows: list[LineageRow] = archive.lineage(archive.program(program_id).program_id)
    return rows


def latest_run(archive: Any) -> Run:
    """The run that started last.

    Raises:
        NotFoundError: the archive holds no run.
    """
    runs: list[Run] = archive.runs()
    if not runs:
        raise NotFoundError("the archive holds no run", "start one: evolve run softmax")
    return max(runs, key=lambda run: run.started_at)


def _device_us(elite: Elite) -> float:
    return elite.verdict.latency.device_us if elite.verdict.latency else float("inf")


def _require_problem(archive: Any, problem: str | None) -> None:
    """Refuses a problem that the archive does not hold, and suggests the near one."""
    if problem is None:
        return
    known = archive.problems()
    if any(problem in (p.name, p.problem_id) for p in known):
        return
    names = sorted({p.name for p in known})
    near = difflib.get_close_matches(problem, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"it holds: {', '.join(names)}" if names else "it is empty"
    raise NotFoundError(f"the archive holds no problem {problem!r}", hint)
