"""What people ask an archive: the library twins of `evolve elites`, `best`, `show`, `diff` and `lineage`.

Each function takes an open archive (`db.live.open_for_reading`) and returns records.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from db.errors import NotFoundError
from db.opinions import ProgramOpinion
from db.queries import Elite, LineageRow
from db.reading import ArchiveReader
from db.records import Evaluation, LatencyKind, Lineage, PrecisionClass, Problem, Program, Record, Run, Verdict


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
    opinions: tuple[ProgramOpinion, ...] = ()  # of judge models, the newest first; no gate asked for them


@contextmanager
def reading(path: Path) -> Iterator[ArchiveReader]:
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
    archive: ArchiveReader,
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
    if problem is not None:
        archive.problem(problem)
    if run_id is not None:
        archive.run(run_id)
    found = archive.elites(
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
    archive: ArchiveReader,
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
    archive.problem(problem)
    found = archive.best(problem, hardware_id=hardware_id, precision=precision, latency_kind=latency_kind)
    if found is None:
        asked = ", ".join(str(part) for part in (hardware_id, latency_kind, f"{precision} precision") if part)
        raise NotFoundError(f"no correct program for {problem!r} ({asked})", _where_else(archive, problem))
    return found


def _where_else(archive: ArchiveReader, problem: str) -> str:
    """A hint for whom nothing was found: under which conditions there is something, or how to get it."""
    grids = sorted({grid_of(elite)[1:] for elite in archive.elites(problem=problem)})
    others = "; ".join(f"{hardware}, {kind}, {precision} precision" for hardware, kind, precision in grids)
    search = f"search first: evolve run {problem}"
    return f"there are some: {others}; for others {search}" if others else search


def best_by_shape(
    archive: ArchiveReader,
    problem: str,
    *,
    hardware_id: str | None = None,
    precision: PrecisionClass = PrecisionClass.REFERENCE,
    latency_kind: LatencyKind | None = None,
) -> list[tuple[Problem, Elite]]:
    """The fastest program at each setting that a problem of this name was searched at, on one GPU and by one kind of
    latency: those of `best`, which comes first.

    Raises:
        NotFoundError: as `best`.
    """
    first = best(archive, problem, hardware_id=hardware_id, precision=precision, latency_kind=latency_kind)
    grid = grid_of(first)
    found = []
    for setting in archive.problems():
        if setting.name == first.problem_name:
            elite = archive.best(
                setting.problem_id, hardware_id=grid[1], precision=precision, latency_kind=LatencyKind(grid[2])
            )
            found += [(setting, elite)] if elite is not None else []
    return sorted(found, key=lambda pair: pair[1].program.problem_id != first.program.problem_id)


def show(archive: ArchiveReader, program_id: str) -> ProgramStory:
    """A program and every time that it was proposed, in order.

    Args:
        program_id: the id or an unambiguous beginning of it.

    Raises:
        NotFoundError: no such program, or several.
    """
    program = archive.program(program_id)
    evaluations = archive.evaluations_of(program.program_id)
    evaluations.sort(key=lambda e: bool(e.verdict.duplicate_of))
    return ProgramStory(
        program=program,
        problem_name=archive.problem(program.problem_id).name,
        appearances=tuple(_appearance(evaluation) for evaluation in evaluations),
        opinions=tuple(archive.opinions(program.program_id)),
    )


def _appearance(evaluation: Evaluation) -> Appearance:
    candidate = evaluation.candidate
    return Appearance(
        candidate_id=candidate.candidate_id,
        run_id=candidate.run_id,
        island=candidate.island,
        lineage=candidate.lineage,
        verdict=evaluation.verdict,
    )


def diff(archive: ArchiveReader, before: str, after: str, *, context: int = 3) -> list[str]:
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


def lineage(archive: ArchiveReader, program_id: str) -> list[LineageRow]:
    """The ancestors of a program, oldest first, itself last.

    Raises:
        NotFoundError: no such program, or several that begin so.
    """
    return archive.lineage(program_id)


def latest_run(archive: ArchiveReader) -> Run:
    """The run that started last; where that is the search of a part of a model, the run of the model.

    Raises:
        NotFoundError: the archive holds no run.
    """
    runs = archive.runs()
    if not runs:
        raise NotFoundError("the archive holds no run", "start one: evolve run softmax")
    return _model_of(runs[-1], runs) or runs[-1]


def folder_of(run: Run) -> Path:
    """The folder that a run writes its results to."""
    return Path(str(run.config.get("out") or f"evolve-out/{run.run_id}"))


def _model_of(run: Run, runs: Sequence[Run]) -> Run | None:
    """The run of the model whose folder holds that of a search: MODEL/searches/PART (see evolve.models.run)."""
    searches = folder_of(run).parent
    if searches.name != "searches":
        return None
    around = [one for one in runs if folder_of(one) == searches.parent and one.started_at <= run.started_at]
    return around[-1] if around else None


def _device_us(elite: Elite) -> float:
    return elite.verdict.latency.device_us if elite.verdict.latency else float("inf")
