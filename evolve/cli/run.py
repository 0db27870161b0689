"""`evolve run`: a search, watched."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from db.records import PrecisionClass
from evolve.cli.choices import Device, Strategy
from evolve.cli.live import watching
from evolve.cli.options import DEFAULT_ARCHIVE, parse_shapes
from evolve.cli.summary import finish
from evolve.config import RunConfig, load_config, parse_duration
from evolve.run import run_search


def _default(key: str) -> str:
    """The default of a config key as an option's help shows it; an option that is not given stays out of the layers."""
    return f"[default: {RunConfig.model_fields[key].default}]"


def run(
    problem: Annotated[str, typer.Argument(help="A name of `evolve problems list`, or a file.")],
    archive: Annotated[
        Path | None, typer.Option("--archive", help=f"The archive: a DuckDB file. [default: {DEFAULT_ARCHIVE}]")
    ] = None,
    islands: Annotated[
        int | None, typer.Option("--islands", min=1, help=f"Islands that evolve side by side. {_default('islands')}")
    ] = None,
    evaluations: Annotated[
        int | None, typer.Option("--evaluations", min=1, help=f"Stop after so many verdicts. {_default('evaluations')}")
    ] = None,
    time: Annotated[str | None, typer.Option("--time", help="Stop after so long: 90s, 10m, 1h30m.")] = None,
    device: Annotated[
        Device | None, typer.Option("--device", help=f"Where candidates are judged. {_default('device')}")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", help=f"The GPU that a modelled latency is for. {_default('target')}")
    ] = None,
    shape: Annotated[
        list[str] | None, typer.Option("--shape", help="Override a size of the problem: batch=64. Repeatable.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Override a config key: search.migration_size=4. Repeatable.")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="A YAML file with config keys.")] = None,
    preset: Annotated[str, typer.Option("--preset", help="A preset of config keys that ships with evolve.")] = "",
    seed_from: Annotated[
        list[Path] | None, typer.Option("--seed-from", help="Start from the elites of this archive. Repeatable.")
    ] = None,
    seed_program: Annotated[
        list[Path] | None, typer.Option("--seed-program", help="Start from the program in this file. Repeatable.")
    ] = None,
    rng_seed: Annotated[
        int | None, typer.Option("--rng-seed", help=f"Seed of all randomness of the search. {_default('rng_seed')}")
    ] = None,
    precision: Annotated[
        PrecisionClass | None,
        typer.Option(
            "--precision", help="Precision class to search; relaxed allows TF32 and the like. [default: reference]"
        ),
    ] = None,
    strategy: Annotated[
        Strategy | None, typer.Option("--strategy", help=f"How parents are chosen. {_default('strategy')}")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the best program and the report. [default: evolve-out/RUN]")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")] = False,
) -> None:
    """Search for a faster kernel for a problem.

    Everything that is tried is kept in the archive; Ctrl-C stops cleanly and says how to resume.
    """
    options: dict[str, Any] = {
        "archive": archive,
        "islands": islands,
        "evaluations": evaluations,
        "time_s": parse_duration(time) if time else None,
        "device": device,
        "target": target,
        "shapes": parse_shapes(shape or ()) or None,
        "seed_from": seed_from,
        "seed_programs": seed_program,
        "rng_seed": rng_seed,
        "precision": precision,
        "strategy": strategy,
        "out": out,
    }
    layers = {key: _plain(value) for key, value in options.items() if value not in (None, [])}
    settings = load_config(problem, preset=preset, file=config, sets=set_ or (), options=layers)
    with watching(quiet=quiet) as on_event:
        result = run_search(settings, on_event=on_event)
    finish(result, archive=settings.archive)


def _plain(value: Any) -> Any:
    """An option's value as a config file would hold it."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, StrEnum):
        return value.value
    return str(value) if isinstance(value, Path) else value
