"""`evolve export`: the archive for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evolve.cli.choices import ExportFormat
from evolve.cli.console import note
from evolve.cli.options import DEFAULT_ARCHIVE, Archive
from evolve.queries import reading


def export(
    output: Annotated[
        Path, typer.Argument(help="The folder to write to, or a file for the evaluations alone.", metavar="OUTPUT")
    ],
    archive: Archive = DEFAULT_ARCHIVE,
    format: Annotated[ExportFormat, typer.Option("--format", help="The format of the files.")] = ExportFormat.PARQUET,
    run: Annotated[str | None, typer.Option("--run", help="Only this run.", metavar="RUN")] = None,
) -> None:
    """Write the archive's tables as Parquet or JSONL."""
    with reading(archive) as reader:
        paths = reader.export(output, format.value, run_id=run)
    for path in paths:
        print(path)
    note(f"{len(paths)} files")
