"""`evolve bench`: a folder of modules, each improved once, and the table."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from evaluators.decomposition.classify import ModelOutcome
from evolve.cli import run_options as opt
from evolve.cli.console import Column, console, format_seconds, format_times, note, print_json, print_table
from evolve.cli.endings import INTERRUPTED, NEGATIVE
from evolve.cli.model_view import ModelView, silent
from evolve.cli.options import AsJson
from evolve.config import RunConfig, load_config, parse_duration
from evolve.models.bench import BenchRow, BenchTable, modules_of
from evolve.models.bench import bench as bench_modules
from evolve.models.records import ModelRun
from evolve.models.run import check_wanted, run_model

COLUMNS = [
    Column("module", "module", is_whole=True),
    Column("outcome", "outcome"),
    Column("cause", "root cause"),
    Column("speedup", "speed-up", is_number=True),
    Column("parts", "parts", is_number=True),
    Column("took", "took", is_number=True),
    Column("reason", "reason"),
]


def bench(
    modules: Annotated[list[Path], typer.Argument(help="KernelBench-style files, or folders of them.")],
    out: Annotated[
        Path, typer.Option("--out", help="Folder for the results, one folder for each module.", metavar="DIR")
    ] = Path("evolve-bench"),
    archive: opt.Archive = None,
    islands: opt.Islands = None,
    evaluations: opt.Evaluations = None,
    time: opt.Time = None,
    sets: opt.Sets = None,
    config: opt.Config = None,
    preset: opt.Preset = "",
    precision: opt.Precision = None,
    as_json: AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Improve every module of a folder once, and print what became of each.

    `--evaluations` and `--time` are for each module. What has results in the folder already is not run again. Ends with
    1 where a module could not be run.
    """
    files = modules_of(modules)
    options = {
        "archive": str(archive) if archive else None,
        "islands": islands,
        "evaluations": evaluations,
        "time_s": parse_duration(time) if time else None,
        "precision": precision.value if precision else None,
    }
    settings = load_config(str(files[0]), preset=preset, file=config, sets=sets or (), options=options)
    check_wanted(settings)
    is_quiet = quiet or as_json
    improve = partial(_improve, is_quiet=is_quiet)
    table = bench_modules(files, settings, improve, folder=out, on_row=_ignore if is_quiet else _say)
    if as_json:
        print_json(as_values(table))
    else:
        print_table([row_values(row) for row in table.rows], COLUMNS)
        console().print("\n".join(summary_lines(table)))
    if len(table.rows) < len(files):
        raise typer.Exit(INTERRUPTED)
    if table.n_errors:
        raise typer.Exit(NEGATIVE)


def _improve(config: RunConfig, *, is_quiet: bool) -> ModelRun:
    return run_model(config, silent if is_quiet else ModelView())


def _ignore(row: BenchRow) -> None:
    """Says nothing."""


def _say(row: BenchRow) -> None:
    known = ", known from an earlier sitting" if row.is_known else ""
    note(f"{row.module}: {row.outcome or row.error}{known}")


def row_values(row: BenchRow) -> dict[str, str]:
    """A row as the table prints it."""
    return {
        "module": row.module,
        "outcome": str(row.outcome) if row.outcome else "error",
        "cause": str(row.cause) if row.cause else "",
        "speedup": format_times(row.speedup) if row.speedup else "",
        "parts": f"{row.n_used} of {row.n_parts}",
        "took": format_seconds(row.seconds),
        "reason": row.error or row.reason,
    }


def summary_lines(table: BenchTable) -> list[str]:
    """What the papers print below the table."""
    counts = ", ".join(f"{table.count(outcome)} {outcome}" for outcome in ModelOutcome)
    errors = f", {table.n_errors} could not be run" if table.n_errors else ""
    lines = [f"{len(table.rows)} modules: {counts}{errors}"]
    if table.causes:
        lines.append("fallbacks: " + ", ".join(f"{n} {cause}" for cause, n in table.causes.items()))
    if table.geomean is not None:
        over = f", {format_times(table.geomean_optimized)} over the optimized" if table.geomean_optimized else ""
        lines.append(f"geometric mean {format_times(table.geomean)} over all{over}")
    fast = ", ".join(f"fast_{p:g} {share:.0%}" for p, share in table.fast_p.items())
    return [*lines, fast]


def as_values(table: BenchTable) -> dict[str, object]:
    """The table for scripts."""
    return {
        "modules": [row.model_dump(mode="json") for row in table.rows],
        "outcomes": {str(outcome): table.count(outcome) for outcome in ModelOutcome},
        "errors": table.n_errors,
        "root_causes": table.causes,
        "geomean": table.geomean,
        "geomean_optimized": table.geomean_optimized,
        "fast_p": {f"{p:g}": share for p, share in table.fast_p.items()},
    }
