"""`evolve bench`: a folder of modules, each improved once, and the table."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from evolve.cli import run_options as opt
from evolve.cli.console import Column, console, format_seconds, format_times, note, print_json, print_table
from evolve.cli.endings import INTERRUPTED, NEGATIVE
from evolve.cli.model_view import ModelView, silent
from evolve.cli.options import AsJson
from evolve.config import RunConfig, load_config, parse_duration
from evolve.models.bench import modules_of
from evolve.models.figures import NO_LEVEL, Figures, Group, Spread
from evolve.models.fleet import Seat
from evolve.models.records import ModelRun
from evolve.models.rows import BenchRow
from evolve.models.run import check_wanted, run_model
from evolve.models.sheets import percent, setting_lines, times
from evolve.models.sitting import bench_here
from evolve.models.table import BenchTable, as_values
from evolve.models.written import write_table

GOES_ON = "the same command goes on where this one stopped"
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
    modules: Annotated[
        list[Path], typer.Argument(help="KernelBench-style files, or folders of them.", metavar="MODULES")
    ],
    out: Annotated[
        Path, typer.Option("--out", help="Folder for the results, one folder for each module.", metavar="DIR")
    ] = Path("evolve-bench"),
    archive: opt.Archive = None,
    islands: opt.Islands = None,
    evaluations: opt.Evaluations = None,
    time: Annotated[
        str | None, typer.Option("--time", "--budget", help="Time for each module: 90s, 10m, 1h30m.", metavar="TIME")
    ] = None,
    sets: opt.Sets = None,
    config: opt.Config = None,
    preset: opt.Preset = "",
    precision: opt.Precision = None,
    seed_from: opt.SeedFrom = None,
    knowledge: opt.Knowledge = None,
    model: opt.Models = None,
    gpus: Annotated[
        int | None,
        typer.Option(
            "--gpus", help="GPUs of this machine to use, a module on each.  [default: all]", min=1, metavar="N"
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Improve every module of a folder, and print the outcomes.

    `--evaluations` and `--time` are for each module. Modules that can gain most come first, one on each GPU at a time.
    What has results in the folder already is not run again: the same command goes on after Ctrl-C. Ends with 1 where
    a module could not be run.
    """
    files = modules_of(modules)
    options = {
        "archive": str(archive) if archive else None,
        "islands": islands,
        "evaluations": evaluations,
        "time_s": parse_duration(time) if time else None,
        "precision": precision.value if precision else None,
        "seed_from": list(map(str, seed_from)) if seed_from else None,
        "knowledge": knowledge,
        "models": model or None,
    }
    settings = load_config(str(files[0]), preset=preset, file=config, sets=sets or (), options=options)
    table = _sit(files, settings, out, gpus, is_quiet=quiet or as_json)
    written = write_table(table, out)
    if as_json:
        print_json(as_values(table))
    else:
        print_table([row_values(row) for row in table.rows], COLUMNS)
        console().print("\n".join([*setting_lines(table), *summary_lines(table)]))
        console().print(f"  table  {', '.join(map(str, written))}")
    code, remark = ending_of(table, len(files))
    if remark:
        note(remark)
    if code:
        raise typer.Exit(code)


def ending_of(table: BenchTable, n_modules: int) -> tuple[int, str]:
    """The exit code, and where it was interrupted how to go on."""
    if len(table.rows) < n_modules or table.is_interrupted:
        n_left = n_modules - sum(not (row.is_interrupted or row.error) for row in table.rows)
        return INTERRUPTED, f"interrupted with {n_left} of {n_modules} modules left: {GOES_ON}"
    return (NEGATIVE if table.n_errors else 0), ""


def _sit(files: list[Path], settings: RunConfig, out: Path, gpus: int | None, *, is_quiet: bool) -> BenchTable:
    """One sitting, watched. A GPU has to be there where a module is left to run."""
    try:
        return bench_here(
            files,
            settings,
            partial(_improve, is_quiet=is_quiet),
            n_gpus=gpus,
            folder=out,
            on_row=_ignore if is_quiet else _say,
            on_begin=_ignore_seat if is_quiet else _say_seat,
            on_look=_ignore_look if is_quiet else _say_look,
            check=partial(check_wanted, settings),
        )
    except KeyboardInterrupt:
        note(GOES_ON)
        raise


def _improve(config: RunConfig, *, is_quiet: bool) -> ModelRun:
    return run_model(config, silent if is_quiet else ModelView())


def _ignore(row: BenchRow) -> None:
    """Says nothing."""


def _say(row: BenchRow) -> None:
    known = ", known from an earlier sitting" if row.is_known else ""
    note(f"{row.module}: {row.outcome or row.error}{known}")


def _ignore_seat(module: Path, seat: Seat) -> None:
    """Says nothing."""


def _say_seat(module: Path, seat: Seat) -> None:
    note(f"{module.stem}: begun on GPU {seat.gpus}")


def _ignore_look(module: Path) -> None:
    """Says nothing."""


def _say_look(module: Path) -> None:
    note(f"{module.stem}: looking at how much of its time can be won back")


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
    """What the papers print below the table, for each precision class; `bench.md` has all of it."""
    lines = []
    for figures in table.classes:
        lines += [f"{figures.precision} precision", *_figure_lines(figures.all, "modules")]
        if figures.degenerate:
            names = ", ".join(figures.degenerate)
            lines.append(f"without {len(figures.degenerate)} degenerate: {names}")
            lines += _figure_lines(figures.sound, "others")
        if figures.needless:
            names = ", ".join(figures.needless)
            lines.append(f"without {len(figures.needless)} that ask for needless work, either: {names}")
            lines += _figure_lines(figures.lean, "others")
        if figures.n_unlooked:
            lines.append(f"of {figures.n_unlooked} it is not known whether they are degenerate")
    return lines


def _figure_lines(figures: Figures, what: str) -> list[str]:
    outcomes = ", ".join(f"{found.n} {name} ({percent(found.share)})" for name, found in figures.outcomes.items())
    errors = f", {figures.n_errors} could not be run" if figures.n_errors else ""
    lines = [f"{figures.n} {what}: {outcomes}{errors}; {percent(figures.valid.share)} valid"]
    if figures.causes:
        lines.append("fallbacks: " + ", ".join(f"{found.n} {cause}" for cause, found in figures.causes.items()))
    if figures.delivered is not None:
        lines += _speedup_lines(figures, figures.delivered)
    lines.append("dominated by: " + ", ".join(f"{name} {_group(one)}" for name, one in figures.dominant.items()))
    if set(figures.levels) != {NO_LEVEL}:
        lines.append("levels: " + ", ".join(f"{name}: {_group(one)}" for name, one in figures.levels.items()))
    lines.append(", ".join(f"fast_{p} {percent(share)}" for p, share in figures.fast_p.items()))
    return lines


def _speedup_lines(figures: Figures, delivered: Spread) -> list[str]:
    optimized = f", {times(figures.optimized.geomean)} over the optimized" if figures.optimized else ""
    lines = [
        f"geometric mean {times(delivered.geomean)} over all{optimized}",
        f"mean {times(delivered.mean)}, median {times(delivered.median)}, {times(delivered.smallest)} to "
        f"{times(delivered.largest)}, {percent(delivered.share_above)} above 1",
    ]
    for name, one in figures.against.items():
        won = f"{one.n_wins} won, {one.n_ties} equal, {one.n_losses} lost"
        lines.append(f"over {name}: {times(one.spread.geomean)}, {won}")
    if figures.roofline is not None:
        lines.append(f"roofline efficiency {percent(figures.roofline.median)} (median of {figures.roofline.n})")
    return lines


def _group(group: Group) -> str:
    return f"{group.n} ({times(group.geomean)})"
