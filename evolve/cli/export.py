"""`evolve export`: the archive for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from db.errors import ConfigError
from evolve.cli.choices import ExportFormat
from evolve.cli.console import note
from evolve.cli.options import DEFAULT_ARCHIVE, Archive
from evolve.queries import reading


def export(
    output: Annotated[
        Path, typer.Argument(help="The folder to write to, or a file for the evaluations alone.", metavar="OUTPUT")
    ],
    archive: Archive = DEFAULT_ARCHIVE,
    format: Annotated[
        ExportFormat | None,
        typer.Option("--format", help="The format of the files.  [default: as OUTPUT ends, else parquet]"),
    ] = None,
    run: Annotated[str | None, typer.Option("--run", help="Only this run.", metavar="RUN")] = None,
) -> None:
    """Write the archive's tables as Parquet or JSONL."""
    with reading(archive) as reader:
        paths = reader.export(output, (format or _format_of(output)).value, run_id=run)
    for path in paths:
        print(path)
    note(f"{len(paths)} file{'s' * (len(paths) != 1)}")


def _format_of(output: Path) -> ExportFormat:
    """What the name of a file says; folders get Parquet.

    Raises:
        ConfigError: the name ends otherwise.
    """
    suffix = output.suffix.removeprefix(".")
    if not suffix:
        return ExportFormat.PARQUET
    try:
        return ExportFormat(suffix)
    except ValueError:
        known = " or ".join(f".{one}" for one in ExportFormat)
        raise ConfigError(f"no format is called {suffix}: {output}", f"end it in {known}, or say --format") from None
