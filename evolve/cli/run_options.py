"""The options of `evolve run`. One that is not given stays out of the layers of configuration: its default is None."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from db.records import PrecisionClass
from evolve.cli.choices import Device, Parts, Strategy
from evolve.cli.options import DEFAULT_ARCHIVE, Shapes
from evolve.config import RunConfig

__all__ = [
    "Archive",
    "Config",
    "Deterministic",
    "DeviceChoice",
    "Evaluations",
    "Inputs",
    "Islands",
    "Knowledge",
    "Out",
    "PartsChoice",
    "Precision",
    "Preset",
    "ProblemName",
    "Quiet",
    "RayAddress",
    "RngSeed",
    "SeedFrom",
    "SeedProgram",
    "Sets",
    "Shapes",
    "StrategyChoice",
    "Target",
    "Time",
]


def _option(name: str, about: str, *, key: str = "", **more: Any) -> Any:
    """An option whose help shows the default of a config key."""
    default = RunConfig.model_fields[key].default if key else ""
    shown = f"  [default: {'none' if default == () else default}]" if key else ""
    return typer.Option(name, help=about + shown, show_default=False, **more)


ProblemName = Annotated[
    str,
    typer.Argument(
        help="A name of `evolve problems list`, a file, or a module of a package: mylib.blocks:Block.",
        metavar="PROBLEM",
    ),
]
Inputs = Annotated[
    str | None,
    typer.Option(
        "--inputs",
        help="Inputs of a module of a package: a file with get_inputs(), or a function: mylib.blocks:example_inputs.",
        metavar="INPUTS",
    ),
]
Archive = Annotated[
    Path | None,
    typer.Option("--archive", help=f"The archive: a DuckDB file.  [default: {DEFAULT_ARCHIVE}]", metavar="FILE"),
]
Islands = Annotated[
    int | None, _option("--islands", "Islands that evolve side by side.", key="islands", min=1, metavar="N")
]
Evaluations = Annotated[
    int | None, _option("--evaluations", "Stop after so many verdicts.", key="evaluations", min=1, metavar="N")
]
Time = Annotated[str | None, _option("--time", "Stop after so long: 90s, 10m, 1h30m.", metavar="TIME")]
DeviceChoice = Annotated[Device | None, _option("--device", "Where candidates are judged.", key="device")]
Target = Annotated[
    str | None, _option("--target", "The GPU that a modelled latency is for.", key="target", metavar="GPU")
]
Sets = Annotated[
    list[str] | None,
    _option("--set", "Override a config key: search.migration_size=4. Repeatable.", metavar="KEY=VALUE"),
]
Config = Annotated[Path | None, _option("--config", "A YAML file with config keys.", metavar="FILE")]
Preset = Annotated[str, _option("--preset", "A preset of config keys that ships with evolve.", metavar="NAME")]
SeedFrom = Annotated[
    list[Path] | None, _option("--seed-from", "Start from the elites of this archive. Repeatable.", metavar="ARCHIVE")
]
Knowledge = Annotated[
    str | None,
    _option(
        "--knowledge",
        "What earlier runs learnt: of the archives, none, or of a file of `evolve knowledge export`.",
        key="knowledge",
        metavar="archive|none|FILE",
    ),
]
Models = Annotated[
    list[str] | None,
    _option(
        "--model",
        "A language model that proposes as well: provider/name[:weight]. Repeatable.",
        key="models",
        metavar="MODEL",
    ),
]
SeedProgram = Annotated[
    list[Path] | None, _option("--seed-program", "Start from the program in this file. Repeatable.", metavar="FILE")
]
RngSeed = Annotated[
    int | None, _option("--rng-seed", "Seed of all randomness of the search.", key="rng_seed", metavar="N")
]
Deterministic = Annotated[
    bool,
    typer.Option(
        "--deterministic",
        help="Tell verdicts in the order of asking: on modelled latencies the same command finds the same programs.",
    ),
]
Precision = Annotated[
    PrecisionClass | None,
    _option("--precision", "Precision class to search; relaxed allows TF32 and the like.", key="precision"),
]
PartsChoice = Annotated[
    Parts | None, _option("--parts", "Whether a module is taken apart and improved part by part.", key="parts")
]
StrategyChoice = Annotated[Strategy | None, _option("--strategy", "How parents are chosen.", key="strategy")]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="Folder for the best program and the report.  [default: evolve-out/RUN]", metavar="DIR"),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        help="A running Ray cluster to use: its head's HOST:PORT, or auto for the one of this machine.",
        metavar="ADDRESS",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")]
