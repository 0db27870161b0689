"""`evolve elites`: the grids, one table each."""

from __future__ import annotations

from itertools import groupby
from typing import Annotated

import typer

from db.measures import MeasureSpace
from db.queries import Elite
from db.records import LatencyKind, PrecisionClass
from evolve.cli.console import Column, latency_cells, latency_columns, note, print_json, print_table
from evolve.cli.options import DEFAULT_ARCHIVE, Archive, AsJson
from evolve.queries import elites as find_elites
from evolve.queries import grid_of, reading


def elites(
    archive: Archive = DEFAULT_ARCHIVE,
    problem: Annotated[
        str | None, typer.Option("--problem", help="Only this problem, by name or id.", metavar="PROBLEM")
    ] = None,
    run: Annotated[str | None, typer.Option("--run", help="Only what this run found.", metavar="RUN")] = None,
    hardware: Annotated[
        str | None, typer.Option("--hardware", help="Only this GPU, e.g. nvidia-h200.", metavar="GPU")
    ] = None,
    precision: Annotated[PrecisionClass | None, typer.Option("--precision", help="Only this precision class.")] = None,
    kind: Annotated[LatencyKind | None, typer.Option("--kind", help="Only this kind of latency.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most so many.", metavar="N")] = None,
    as_json: AsJson = False,
) -> None:
    """List the fastest program of every cell of the grid."""
    with reading(archive) as reader:
        found = find_elites(
            reader,
            problem=problem,
            run_id=run,
            hardware_id=hardware,
            precision=precision,
            latency_kind=kind,
            limit=limit,
        )
    if as_json:
        print_json([_row(elite) for elite in found])
    elif not found:
        note(
            "no correct program that fits"
            if any((problem, run, hardware, precision, kind))
            else "no correct program yet"
        )
    else:
        _print_grids(found)


def _print_grids(found: list[Elite]) -> None:
    for grid, group in groupby(found, key=grid_of):
        problem, hardware, kind, precision = grid
        title = f"{problem} on {hardware}, {kind}, {precision} precision"
        print_table([_row(elite) for elite in group], _columns(LatencyKind(kind)), title=title)


def _columns(kind: LatencyKind) -> list[Column]:
    return [
        Column("tier", "tier", lambda tier: tier.replace("_", " ")),
        Column("bin", "cell us", is_number=True),
        *latency_columns(kind),
        Column("baseline", "over", is_spare=True),
        Column("replaces_baseline", "wins", lambda wins: "yes" if wins else "no"),
        Column("technique", "technique"),
        Column("island", "island", is_number=True, is_spare=True),
        Column("run", "run", is_whole=True, is_spare=True),
        Column("program", "program", lambda program_id: program_id[:12], is_whole=True),
    ]


def _row(elite: Elite) -> dict[str, object]:
    verdict, latency = elite.verdict, elite.verdict.latency
    assert latency is not None  # an elite is correct, and a correct verdict has a latency
    low, high = MeasureSpace().edges_us(MeasureSpace().latency_bin_of(latency.device_us))
    return {
        "problem": elite.problem_name,
        "hardware": verdict.hardware_id,
        "precision": str(verdict.precision),
        "tier": str(verdict.tier),
        "bin": f"{low:.4g}-{high:.4g}",
        **latency_cells(latency.kind, latency.device_us, latency.speedup),
        "baseline": latency.baseline_name,
        "baseline_us": latency.baseline_us,
        "replaces_baseline": verdict.replaces_baseline,
        "technique": elite.lineage.technique or elite.lineage.operator,
        "island": elite.island,
        "run": elite.run_id,
        "program": elite.program.program_id,
    }
