"""`evolve profile`: why is the program in this file not faster?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from db.profile import Counters, KernelProfile, Profile
from db.records import PrecisionClass
from evaluators.settings import EvaluatorSettings
from evolve.cli.choices import Device
from evolve.cli.console import Column, console, format_us, print_json, print_table
from evolve.cli.endings import NEGATIVE
from evolve.cli.options import AsJson, Shapes, parse_shapes
from evolve.profiling import ProfileResult, profile_file

_FROM = {"ncu": "counters of Nsight Compute", "compiled": "the compiled kernels and the model", "none": "nothing"}


def profile(
    file: Annotated[Path, typer.Argument(help="A file with a program: ModelNew or kernel_function.", metavar="FILE")],
    problem: Annotated[
        str, typer.Option("--problem", "-p", help="A name of `evolve problems list`, or a file.", metavar="PROBLEM")
    ],
    shape: Shapes = None,
    device: Annotated[Device, typer.Option("--device", help="Where it is profiled.")] = Device.AUTO,
    target: Annotated[
        str, typer.Option("--target", help="The GPU that is modelled where there is none.", metavar="GPU")
    ] = "h100",
    precision: Annotated[
        PrecisionClass, typer.Option("--precision", help="The precision class that techniques may use.")
    ] = PrecisionClass.REFERENCE,
    as_json: AsJson = False,
) -> None:
    """Say what keeps one file from being faster, without judging it.

    Ends with 1 when there is no profile.
    """
    result = profile_file(
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
    if not result.is_known:
        raise typer.Exit(NEGATIVE)


def _print(result: ProfileResult) -> None:
    out = console()
    if not result.is_known:
        out.print(f"no profile: {result.profile.note}", style="bold")
        return
    report = result.report
    if result.n_configurations > 1:
        out.print(f"{result.n_configurations} configurations of @triton.autotune; this is the fastest", style="dim")
    where = f"{_FROM[report.source]}, {result.hardware.name}"
    out.print(f"{report.tier.replace('_', ' ')} ({where})", style="bold")
    out.print(report.limit)
    if result.profile.note:
        out.print(f"no counters: {result.profile.note}")
    out.print(f"state {report.state.key}", style="dim")
    print_table([e.model_dump() for e in report.evidence], _EVIDENCE, title="evidence")
    if result.profile.kernels:
        print_table(_kernel_rows(result.profile), _KERNELS, title="kernels in launch order")
    if report.rules:
        print_table([rule.model_dump() for rule in report.rules], _RULES, title="advice of Nsight Compute")
    if report.techniques:
        out.print(f"techniques that address this, best first: {', '.join(report.techniques)}")


_EVIDENCE = [
    Column("metric", "figure"),
    Column("value", "value", lambda value: f"{value:.6g}", is_number=True),
    Column("unit", "unit"),
    Column("meaning", "meaning"),
]


def _percent(value: float) -> str:
    return f"{value:.0f}%"


_KERNELS = [
    Column("kernel", "kernel"),
    Column("duration_us", "us", format_us, is_number=True),
    Column("share", "share", _percent, is_number=True),
    Column("compute_sol_pct", "SMs", _percent, is_number=True),
    Column("memory_sol_pct", "memory", _percent, is_number=True),
    Column("dram_gb_s", "GB/s", lambda value: f"{value:.0f}", is_number=True),
    Column("occupancy", "occupancy", _percent, is_number=True),
    Column("n_registers", "registers", is_number=True),
    Column("stall", "waits most for"),
]
_RULES = [
    Column("name", "rule"),
    Column("speedup_pct", "could win", _percent, is_number=True),
    Column("scope", "of", lambda scope: {"local": "its unit", "global": "the kernel"}.get(scope, "")),
    Column("message", "message"),
]


def _kernel_rows(profile: Profile) -> list[dict[str, Any]]:
    """One row for each launch, and the whole as the last."""
    rows = [_row(kernel.kernel, kernel, profile.duration_us) for kernel in profile.kernels]
    return [*rows, _row("whole", profile, profile.duration_us)]


def _row(name: str, counters: KernelProfile | Counters, in_all_us: float | None) -> dict[str, Any]:
    share = 100 * counters.duration_us / in_all_us if counters.duration_us and in_all_us else None
    occupancy = counters.achieved_occupancy
    return {
        **counters.model_dump(include={"duration_us", "compute_sol_pct", "memory_sol_pct", "dram_gb_s", "n_registers"}),
        "kernel": name,
        "share": share,
        "occupancy": None if occupancy is None else 100 * occupancy,
        "stall": counters.stalls[0].reason if counters.stalls else None,
    }


def _as_json(result: ProfileResult) -> dict[str, object]:
    return {
        "problem": result.problem,
        "hardware": result.hardware.name,
        "source": result.profile.source,
        "note": result.profile.note,
        "n_configurations": result.n_configurations,
        "report": result.report.model_dump(mode="json"),
        "profile": result.profile.model_dump(mode="json"),
    }
