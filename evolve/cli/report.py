"""`evolve report`: the story of a run as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from db.errors import ArchiveError
from evolve.cli.options import DEFAULT_ARCHIVE, Archive
from evolve.queries import latest_run, reading
from evolve.reports.model import write_report_of


def report(
    run: Annotated[
        str | None,
        typer.Argument(
            help="The run.  [default: the latest of the archive; after a model that of the whole]", metavar="RUN"
        ),
    ] = None,
    archive: Archive = DEFAULT_ARCHIVE,
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder.  [default: evolve-out/RUN]", metavar="DIR")
    ] = None,
) -> None:
    """Write the HTML report of a run.

    After a whole model that is the page of the model. Prints the path of the file.
    """
    with reading(archive) as reader:
        told = reader.run(run) if run else latest_run(reader)
        folder = out or Path("evolve-out") / told.run_id
        try:
            path = write_report_of(reader, told, folder)
        except ArchiveError:  # which is an OSError too
            raise
        except OSError as error:
            raise ArchiveError(
                f"cannot write to {folder}: {error.strerror}", "name another folder: --out DIR"
            ) from None
    print(path)
