"""`evolve lineage`: where a program comes from."""

from __future__ import annotations

from typing import Annotated

import typer

from db.queries import LineageRow
from db.records import LatencyKind
from evolve.cli.console import Column, latency_cells, latency_columns, print_json, print_table
from evolve.cli.options import DEFAULT_ARCHIVE, Archive, AsJson
from evolve.queries import lineage as find_lineage
from evolve.queries import reading


def lineage(
    program: Annotated[str, typer.Argument(help="The program id, or its first digits.", metavar="PROGRAM")],
    archive: Archive = DEFAULT_ARCHIVE,
    as_json: AsJson = False,
) -> None:
    """Show what a program was made of, step by step.

    Oldest first; the program itself is the last line.
    """
    with reading(archive) as reader:
        rows = find_lineage(reader, program)
    if as_json:
        print_json([_row(row) for row in rows])
    else:
        print_table([_row(row) for row in rows], _columns(rows))


def _columns(rows: list[LineageRow]) -> list[Column]:
    kinds = [kind for kind in LatencyKind if any(row.latency_kind is kind for row in rows)]
    return [
        Column("generation", "gen", is_number=True),
        Column("program", "program", lambda program_id: program_id[:12], is_whole=True),
        Column("technique", "technique"),
        Column("detail", "detail"),
        *([Column("diagnosis", "because")] if any(row.diagnosis for row in rows) else []),
        Column("parents", "made of", lambda parents: " ".join(p[:12] for p in parents), is_spare=True),
        Column("island", "island", is_number=True, is_spare=True),
        *(column for kind in kinds for column in latency_columns(kind)),
        *([Column("refusal", "refused because")] if any(row.latency_kind is None for row in rows) else []),
    ]


def _row(row: LineageRow) -> dict[str, object]:
    cells: dict[str, object] = {}
    if row.latency_kind is not None and row.latency_us is not None and row.speedup is not None:
        cells = latency_cells(row.latency_kind, row.latency_us, row.speedup)
    return {
        "generation": row.generation,
        "program": row.program_id,
        "operator": row.operator,
        "technique": row.technique or row.operator,
        "detail": row.detail,
        "diagnosis": row.diagnosis,
        "parents": list(row.parents),
        "run": row.run_id,
        "island": row.island,
        "outcome": str(row.outcome),
        "refusal": row.reason if row.latency_kind is None else "",
        **cells,
    }
