"""`evolve query`: SQL on the archive, read-only."""

from __future__ import annotations

from typing import Annotated

import typer

from evolve.cli.console import Column, note, print_json, print_table
from evolve.cli.options import DEFAULT_ARCHIVE, Archive, AsJson
from evolve.queries import reading


def query(
    sql: Annotated[
        str,
        typer.Argument(
            help="The query; tables runs, problems, programs, evaluations, elites, llm_calls, lessons.", metavar="SQL"
        ),
    ],
    archive: Archive = DEFAULT_ARCHIVE,
    as_json: AsJson = False,
) -> None:
    """Answer an SQL query on the archive.

    Read-only: nothing that it says can change the archive.
    """
    with reading(archive) as reader:
        table = reader.query(sql)
    rows = [{str(k): value for k, value in enumerate(row)} for row in table.rows]
    if as_json:
        print_json([dict(zip(table.columns, row, strict=True)) for row in table.rows])
        return
    print_table(rows, [_column(k, name, table.rows) for k, name in enumerate(table.columns)])
    note(f"{len(rows)} row{'' if len(rows) == 1 else 's'}")


def _column(index: int, name: str, rows: list[tuple[object, ...]]) -> Column:
    values = [row[index] for row in rows if row[index] is not None]
    is_number = bool(values) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    return Column(str(index), name, _write, is_number=is_number)


def _write(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
