"""`evolve best`: take the fastest program home."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from db.errors import NotFoundError
from db.queries import Elite
from db.records import LatencyKind, PrecisionClass, Problem
from evolve.autotune import merge
from evolve.cli.console import note
from evolve.cli.options import DEFAULT_ARCHIVE, Archive
from evolve.cli.source import print_source, write_source
from evolve.cli.words import claim
from evolve.queries import best_by_shape, reading


def best(
    problem: Annotated[str, typer.Argument(help="The problem, by name or id.", metavar="PROBLEM")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the program to this file.", metavar="FILE")
    ] = None,
    archive: Archive = DEFAULT_ARCHIVE,
    hardware: Annotated[
        str | None, typer.Option("--hardware", help="On this GPU, e.g. nvidia-h200.", metavar="GPU")
    ] = None,
    precision: Annotated[
        PrecisionClass, typer.Option("--precision", help="Of this precision class.")
    ] = PrecisionClass.REFERENCE,
    kind: Annotated[
        LatencyKind | None, typer.Option("--kind", help="By this kind of latency.  [default: measured, else modelled]")
    ] = None,
    autotune: Annotated[
        bool, typer.Option("--autotune", help="Merge what won at several shapes into one autotuned program.")
    ] = False,
) -> None:
    """Print a problem's fastest program, or write it to a file."""
    with reading(archive) as reader:
        found = best_by_shape(reader, problem, hardware_id=hardware, precision=precision, latency_kind=kind)
    winners = found if autotune else found[:1]
    source = _merged(winners) if autotune else winners[0][1].program.source
    if output is None:
        print_source(source)
    else:
        write_source(source, output)
    for setting, elite in winners:
        _tell(setting, elite, with_shape=autotune)
    if output is not None:
        note(f"written to {output}")


def _merged(winners: list[tuple[Problem, Elite]]) -> str:
    if len(winners) < 2:
        setting, elite = winners[0]
        raise NotFoundError(
            f"{elite.problem_name} was searched at one shape only: {_shape(setting)}",
            f"search others first: evolve run {elite.problem_name} --shape NAME=VALUE",
        )
    return merge([elite.program.source for _, elite in winners])


def _tell(setting: Problem, elite: Elite, *, with_shape: bool) -> None:
    where = f" at {_shape(setting)}" if with_shape else ""
    note(f"{elite.program.program_id}: {claim(elite.verdict)}{where}")
    if not elite.verdict.replaces_baseline:
        note("it does not beat the baseline: keep what you have")


def _shape(setting: Problem) -> str:
    return " ".join(f"{name}={value}" for name, value in setting.full.sizes.items()) or "its own sizes"
