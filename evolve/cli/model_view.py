"""A whole model, watched: its parts with their shares, what each search found, what was put together, the outcome."""

from __future__ import annotations

import shlex

import typer

from evaluators.decomposition.classify import ModelOutcome, whole_only
from evaluators.decomposition.records import Decomposition, PartProblem
from evolve.budget import AS_MANY_AS_FIT
from evolve.cli.console import console, format_seconds, format_times, format_us
from evolve.cli.endings import INTERRUPTED
from evolve.cli.live import LineView
from evolve.cli.options import archive_option
from evolve.events import OnEvent
from evolve.models.improve import WHOLE
from evolve.models.records import (
    Attempt,
    Found,
    ModelEvent,
    ModelRun,
    PutTogether,
    SearchBegins,
    SearchEnded,
    TakenApart,
)

STARTING = "timing the module, taking it apart"


class ModelView:
    """Prints a line for everything that happens to a model, and a search's own lines below it."""

    def __init__(self) -> None:
        self._search: OnEvent = LineView()
        print(STARTING, flush=True)

    def __call__(self, event: ModelEvent) -> None:
        if isinstance(event, TakenApart):
            print("\n".join(apart_lines(event.decomposition)), flush=True)
        elif isinstance(event, SearchBegins):
            self._search = LineView()  # each search has a best of its own
            print(begin_line(event), flush=True)
        elif isinstance(event, SearchEnded):
            print(found_line(event.name, event.found), flush=True)
        elif isinstance(event, PutTogether):
            print(attempt_line(event.attempt), flush=True)
        else:
            self._search(event)


def silent(event: ModelEvent) -> None:
    """Shows nothing."""


def apart_lines(decomposition: Decomposition) -> list[str]:
    """What a model was taken apart into."""
    alone = whole_only(decomposition)
    left_out = [f"left out: {what}" for what in decomposition.left_out]
    notes = [f"note: {note}" for note in decomposition.notes]
    if alone is not None:
        return [*left_out, f"not searched in parts: {alone[0]}, {alone[1]}", *notes]
    head = (
        f"{len(decomposition.parts)} parts worth a search, {decomposition.extern_share:.1%} of "
        f"{format_us(decomposition.device_us)} us goes to libraries"
    )
    parts = [f"  {p.part.name}  {p.share:6.1%}  {_floor(p)}{', '.join(p.part.kernels)}" for p in decomposition.parts]
    left = [f"  {p.name}  {p.share:6.1%}  left alone: {p.reason}" for p in decomposition.left_alone]
    return [*left_out, head, *parts, *left, *notes]


def _floor(part: PartProblem) -> str:
    """How close it is to what memory allows, where that is known."""
    return "" if part.efficiency is None else f"{part.efficiency:4.0%} of bandwidth  "


def begin_line(event: SearchBegins) -> str:
    """What is searched next, and how long."""
    limits = [] if event.evaluations >= AS_MANY_AS_FIT else [f"{event.evaluations} verdicts"]
    limits += [f"{format_seconds(event.time_s)} at most"] if event.time_s is not None else []
    what = "the module itself" if event.name == WHOLE else f"{event.name}, {event.share:.1%} of the time"
    return f"searching {what}: {', '.join(limits)}"


def found_line(name: str, found: Found) -> str:
    """What a search found."""
    if found.speedup is None:
        judged = f", {found.n_judged} judged" if found.n_judged else ""
        return f"{name}: {found.reason or 'nothing'}{judged}"
    over = "the baseline" if name == WHOLE else "what the model runs now"
    return f"{name}: {format_times(found.speedup)} over {over}, {found.n_judged} judged"


def attempt_line(attempt: Attempt) -> str:
    """What the judge says of a file that was put together."""
    names = [f"{name} (a runner-up)" if name in attempt.runners_up else name for name in attempt.parts]
    what = f"put together with {', '.join(names) or 'no winner'}"
    if attempt.refused_by and not attempt.is_correct:
        return f"{what}: refused by {attempt.refused_by}: {attempt.reason}"
    speedup = format_times(attempt.speedup) if attempt.speedup is not None else "no latency"
    return f"{what}: {speedup}{'' if attempt.replaces_baseline else f', {attempt.reason}'}"


def finish_model(ended: ModelRun, *, archive: str, module: str) -> None:
    """Print how it ended, and end the command with 130 where it was interrupted.

    Args:
        module: its file, as the command named it.
    """
    out = console()
    out.print(f"{ended.problem_name}: {outcome_words(ended)}", style="bold")
    for name, value in _lines(ended, archive):
        out.print(f"  {name:<9} {value}")
    if ended.is_interrupted:
        known = f"--seed-from {shlex.quote(archive)}"  # each part starts from the best that is known of it
        command = f"evolve run {shlex.quote(module)} --parts always{archive_option(archive)} {known}"
        out.print(f"  {'resume':<9} {command}", soft_wrap=True)
        raise typer.Exit(INTERRUPTED)


def outcome_words(ended: ModelRun) -> str:
    """ "optimized, 1.42x", "fallback (GEMM-dominant): keep the baseline, 99.6% of device time goes to aten.mm"."""
    result = ended.result
    if result.outcome is ModelOutcome.OPTIMIZED and result.speedup is not None:
        return f"{result.outcome}, {format_times(result.speedup)}"
    cause = f" ({result.cause})" if result.cause else ""
    return f"{result.outcome}{cause}: keep the baseline{f', {result.reason}' if result.reason else ''}"


def _lines(ended: ModelRun, archive: str) -> list[tuple[str, str]]:
    used = [f"{part.name} {format_times(part.found.speedup or 1.0)}" for part in ended.parts if part.is_used]
    lines = [("parts", ", ".join(used) or "none replaced"), ("took", format_seconds(ended.elapsed_s))]
    if ended.best_path:
        lines.append(("program", ended.best_path))
    lines.append(("summary", f"{ended.folder}/summary.json"))
    if ended.report_path:
        lines.append(("report", ended.report_path))
    return [*lines, ("archive", archive)]
