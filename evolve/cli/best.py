"""`evolve best`: take the fastest program home."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from db.records import LatencyKind, PrecisionClass
from evolve.cli.console import note
from evolve.cli.options import DEFAULT_ARCHIVE, Archive
from evolve.cli.source import print_source, write_source
from evolve.cli.words import claim
from evolve.queries import best as find_best
from evolve.queries import reading


def best(
    problem: Annotated[str, typer.Argument(help="The problem, by name or id.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the program to this file.")] = None,
    archive: Archive = DEFAULT_ARCHIVE,
    hardware: Annotated[str | None, typer.Option("--hardware", help="On this GPU, e.g. nvidia-h200.")] = None,
    precision: Annotated[
        PrecisionClass, typer.Option("--precision", help="Of this precision class.")
    ] = PrecisionClass.REFERENCE,
    kind: Annotated[
        LatencyKind | None, typer.Option("--kind", help="By this kind of latency [default: measured, else modelled].")
    ] = None,
) -> None:
    """Print the fastest program for a problem, or write it to a file."""
    with reading(archive) as reader:
        found = find_best(reader, problem, hardware_id=hardware, precision=precision, latency_kind=kind)
    if output is None:
        print_source(found.program.source)
    else:
        write_source(found.program.source, output)
    note(f"{found.program.program_id}: {claim(found.verdict)}")
    if not found.verdict.replaces_baseline:
        note("it does not beat the baseline: keep what you have")
    if output is not None:
        note(f"written to {output}")
