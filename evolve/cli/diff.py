"""`evolve diff`: what changed from one program to another."""

from __future__ import annotations

from typing import Annotated

import typer

from evolve.cli.console import note
from evolve.cli.endings import NEGATIVE
from evolve.cli.options import DEFAULT_ARCHIVE, Archive
from evolve.cli.source import print_source
from evolve.queries import diff as find_diff
from evolve.queries import reading


def diff(
    before: Annotated[str, typer.Argument(help="A program id, or its first digits.", metavar="BEFORE")],
    after: Annotated[str, typer.Argument(help="Another one.", metavar="AFTER")],
    archive: Archive = DEFAULT_ARCHIVE,
    context: Annotated[int, typer.Option("--context", min=0, help="Equal lines around a change.", metavar="N")] = 3,
) -> None:
    """Show how two programs differ.

    Ends with 1 when they do not differ.
    """
    with reading(archive) as reader:
        lines = find_diff(reader, before, after, context=context)
    if not lines:
        note("the two programs are equal")
        raise typer.Exit(NEGATIVE)
    print_source("\n".join(lines), language="diff")
