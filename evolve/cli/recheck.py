"""`evolve recheck`: do the speed-ups of an archive still hold?"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from db.records import LatencyKind
from evolve.cli.choices import Device
from evolve.cli.console import Column, console, format_times, format_us, note, print_json, print_table
from evolve.cli.endings import NEGATIVE
from evolve.cli.options import AsJson
from evolve.queries import reading
from evolve.recheck import TOLERANCE, Rechecked, RecheckReport
from evolve.recheck import recheck as judge_again


def recheck(
    archive: Annotated[Path, typer.Argument(help="The archive: a DuckDB file.", metavar="ARCHIVE")],
    top: Annotated[
        int, typer.Option("--top", min=1, help="So many of the fastest of each problem and GPU.", metavar="N")
    ] = 20,
    problem: Annotated[
        str | None, typer.Option("--problem", help="Only this problem, by name or id.", metavar="PROBLEM")
    ] = None,
    hardware: Annotated[
        str | None, typer.Option("--hardware", help="Only this GPU, e.g. nvidia-h200.", metavar="GPU")
    ] = None,
    device: Annotated[Device, typer.Option("--device", help="Where they are judged.")] = Device.AUTO,
    trust: Annotated[
        bool,
        typer.Option("--trust", help="Run references that are no built-in problem's: code of the archive, as you."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Judge the best programs of an archive again: do they hold?

    Ends with 1 when a speed-up no longer holds within 5%. Nothing is written.
    """
    with reading(archive) as reader:
        report = judge_again(
            reader,
            top=top,
            problem=problem,
            hardware_id=hardware,
            device=device.value,
            trust=trust,
            watch=_tell_progress,
        )
    if as_json:
        print_json(_as_json(report))
    else:
        _print(report)
    if report.n_held < len(report.rechecked):
        raise typer.Exit(NEGATIVE)


def _tell_progress(one: Rechecked) -> None:
    note(f"{one.problem_name} {one.program_id[:12]}: {'holds' if one.holds else 'does not hold'}")


def _print(report: RecheckReport) -> None:
    key = lambda one: (one.problem_name, one.hardware_id, one.latency_kind, one.precision)  # noqa: E731
    for (problem, hardware, kind, precision), group in groupby(report.rechecked, key=key):
        title = f"{problem} on {hardware}, {kind}, {precision} precision"
        print_table([_row(one) for one in group], _columns(kind), title=title)
    for left in report.skipped:
        note(f"{left.n_programs} of {left.problem_name} on {left.hardware_id} not judged again: {left.reason}")
    if report.share_held is None:
        note("nothing was judged again")
        return
    share = f"{report.n_held} of {len(report.rechecked)} ({100 * report.share_held:.0f}%)"
    console().print(f"{share} speed-ups hold within {100 * TOLERANCE:.0f}%", style="bold")


def _columns(kind: LatencyKind) -> list[Column]:
    return [
        Column("program", "program", lambda program_id: program_id[:12], is_whole=True),
        Column("claimed_us", f"{kind} us, claimed", format_us, is_number=True),
        Column("us", "now", format_us, is_number=True),
        Column("claimed_speedup", f"{kind} speed-up, claimed", format_times, is_number=True),
        Column("speedup", "now", format_times, is_number=True),
        Column("holds", "holds", lambda holds: "yes" if holds else "no"),
        Column("reason", "reason"),
    ]


def _row(one: Rechecked) -> dict[str, object]:
    latency = one.verdict.latency
    return {
        "problem": one.problem_name,
        "hardware": one.hardware_id,
        "latency_kind": str(one.latency_kind),
        "precision": str(one.precision),
        "program": one.program_id,
        "claimed_us": one.claimed_us,
        "us": latency.device_us if latency else None,
        "claimed_speedup": one.claimed_speedup,
        "speedup": one.speedup,
        "holds": one.holds,
        "outcome": str(one.verdict.outcome),
        "reason": "" if latency else one.verdict.reason,
    }


def _as_json(report: RecheckReport) -> dict[str, object]:
    return {
        "n_held": report.n_held,
        "n_rechecked": len(report.rechecked),
        "tolerance": TOLERANCE,
        "programs": [_row(one) for one in report.rechecked],
        "skipped": [left.model_dump(mode="json") for left in report.skipped],
    }
