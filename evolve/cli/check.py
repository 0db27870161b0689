"""`evolve check`: is this file right, honest and fast?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from db.records import PrecisionClass
from evaluators.settings import EvaluatorSettings
from evolve.checking import CheckResult, check_file
from evolve.cli.choices import Device
from evolve.cli.console import console, print_json
from evolve.cli.endings import NEGATIVE
from evolve.cli.gates import gate_row, print_gates
from evolve.cli.options import AsJson, Shapes, parse_shapes
from evolve.cli.words import claim


def check(
    file: Annotated[Path, typer.Argument(help="A file with a program: ModelNew or kernel_function.", metavar="FILE")],
    problem: Annotated[
        str, typer.Option("--problem", "-p", help="A name of `evolve problems list`, or a file.", metavar="PROBLEM")
    ],
    shape: Shapes = None,
    device: Annotated[Device, typer.Option("--device", help="Where it is judged.")] = Device.AUTO,
    target: Annotated[
        str, typer.Option("--target", help="The GPU that a modelled latency is for.", metavar="GPU")
    ] = "h100",
    precision: Annotated[
        PrecisionClass, typer.Option("--precision", help="The precision class that it must have.")
    ] = PrecisionClass.REFERENCE,
    must_win: Annotated[
        bool, typer.Option("--must-win", help="End with 1 also when it may not replace the baseline.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Judge one file by every gate, without a search.

    Ends with 1 when a gate refused it. Nothing is kept.
    """
    result = check_file(
        file,
        problem,
        shapes=parse_shapes(shape or ()),
        device=device.value,
        settings=EvaluatorSettings(target=target, precision=precision),
    )
    if as_json:
        print_json(_as_json(result))
    else:
        _print(result)
    if not result.is_correct or (must_win and not result.best.replaces_baseline):
        raise typer.Exit(NEGATIVE)


def _print(result: CheckResult) -> None:
    out = console()
    best = result.best
    if len(result.verdicts) > 1:
        out.print(f"{len(result.verdicts)} configurations of @triton.autotune; this is the fastest", style="dim")
    print_gates(best)
    answer = "correct" if best.is_correct else str(best.outcome)
    out.print(f"{answer}: {claim(best)}" if best.is_correct else claim(best), style="bold")
    if best.is_correct and not best.replaces_baseline:
        out.print("it may not replace the baseline")


def _as_json(result: CheckResult) -> dict[str, object]:
    return {
        "problem": result.problem.name,
        "hardware": result.hardware.name,
        "is_correct": result.is_correct,
        "gates": [gate_row(gate) for gate in result.best.gates],
        "verdicts": [verdict.model_dump(mode="json", exclude={"captures"}) for verdict in result.verdicts],
    }
