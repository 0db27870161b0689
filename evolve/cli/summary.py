"""What a run says when it ends."""

from __future__ import annotations

import typer

from db.llm_calls import LlmTotal
from db.records import RunStatus
from evolve.cli.console import console, format_seconds
from evolve.cli.endings import INTERRUPTED
from evolve.cli.options import archive_option
from evolve.cli.words import claim
from evolve.events import CounterReport, RunResult
from evolve.stopping import NO_FIRST_PROGRAM, ROOFLINE, STAGNATION

_ENDINGS = {
    ROOFLINE: ": near what the hardware allows (--set stop_at_roofline=1 goes on)",
    STAGNATION: ": no island improved any more (--set stop_when_stagnant=false goes on)",
}


def finish(result: RunResult, *, archive: str) -> None:
    """Print how a run ended, and end the command with 130 where it was interrupted."""
    out = console()
    out.print(_headline(result), style="bold")
    for name, value in _lines(result, archive):
        out.print(f"  {name:<9} {value}")
    if result.run.status is RunStatus.INTERRUPTED:
        raise typer.Exit(INTERRUPTED)


def _headline(result: RunResult) -> str:
    if result.best is None:
        return f"{result.problem.name}: {_why_nothing(result)}"
    if not result.replaces_baseline:
        return f"{result.problem.name}: keep the baseline, nothing beat it; closest {claim(result.best.verdict)}"
    return f"{result.problem.name}: {claim(result.best.verdict)}"


def _why_nothing(result: RunResult) -> str:
    if result.problem.seeds:
        return "keep the baseline, no candidate was correct"
    is_over = result.run.status is RunStatus.FINISHED
    return f"keep the baseline, {NO_FIRST_PROGRAM}" if is_over else "there is no first program yet"


def _lines(result: RunResult, archive: str) -> list[tuple[str, str]]:
    progress = result.progress
    lines = [
        ("judged", _judged(result)),
        ("ended by", _ending(result)),
    ]
    if result.asked is not None:
        lines.append(("models", _asked(result.asked, result.run.run_id, archive_option(archive))))
    if result.counters is not None and result.counters.n_offered:
        lines.append(("counters", counted(result.counters)))
    if result.best is not None:
        beats = "" if result.replaces_baseline else " (does not beat the baseline)"
        lines.append(("program", f"{result.best_path or result.best.candidate.program_id}{beats}"))
    if result.report_path:
        lines.append(("report", result.report_path))
    elif result.report_error:
        lines.append(("report", f"none: {result.report_error}; evolve report {result.run.run_id} tries again"))
    lines.append(("archive", archive))
    option = archive_option(archive)
    if result.run.status is RunStatus.INTERRUPTED:
        lines.append(("resume", f"evolve resume {result.run.run_id}{option}"))
    elif result.run.status is RunStatus.WAITING:
        lines += _ways_on(result, option)
    elif progress.best is not None:
        lines.append(("lineage", f"evolve lineage {progress.best.program_id[:12]}{option}"))
    if result.digest:
        lines.append(("digest", result.digest))
    return lines


def _ending(result: RunResult) -> str:
    reason = result.run.stop_reason or result.run.status.value
    return reason + _ENDINGS.get(reason, "")


def _asked(total: LlmTotal, run_id: str, option: str) -> str:
    """What language models were asked in all sittings, and what that cost as far as they have a price."""
    dollars = "" if total.cost_usd is None else f", ${total.cost_usd:.4f}"
    calls = f"{total.n_calls} call{'s' * (total.n_calls != 1)}"
    return f"{calls}, {total.n_answered} answered{dollars}: evolve llm --run {run_id}{option}"


def counted(counters: CounterReport) -> str:
    """How many of the programs that entered a cell had their counters read, and why not more."""
    said = f"{counters.n_read} of {counters.n_offered} program{'s' * (counters.n_offered != 1)} read"
    is_short = counters.n_read < counters.n_offered and counters.why_not
    return f"{said}; why not more: {counters.why_not}" if is_short else said


def _ways_on(result: RunResult, option: str) -> list[tuple[str, str]]:
    """How answers get into a run that waits for them."""
    run_id, n = result.run.run_id, result.n_waiting
    return [
        ("waiting", f"{n} question{'s' * (n != 1)} for language models"),
        ("export", f"evolve llm export {run_id} -o prompts.jsonl{option}"),
        ("import", f"evolve llm import {run_id} answers.jsonl{option}"),
    ]


def _judged(result: RunResult) -> str:
    progress = result.progress
    return (
        f"{progress.n_judged} candidate{'s' * (progress.n_judged != 1)} in {format_seconds(progress.elapsed_s)}, "
        f"{progress.n_failed} failed, {progress.n_duplicates} repeated earlier work"
    )
