"""Watching a run: a live view in a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.live import Live
from rich.spinner import Spinner

from db.records import LatencyKind
from evolve.cli import panels
from evolve.cli.console import console, format_seconds, format_times, format_us, is_terminal
from evolve.events import (
    CrewChanged,
    Event,
    Interrupted,
    Judged,
    ModelsSilent,
    NoAnswer,
    OnEvent,
    Progress,
    RunStarted,
    Ticked,
)

LINE_EVERY_S = 5.0
STARTING = "starting workers, timing the baseline"
STOPPING = "interrupted: finishing what is being judged; Ctrl-C again ends at once"


@contextmanager
def watching(*, quiet: bool = False) -> Iterator[OnEvent]:
    """An `on_event` that shows a run: live in a terminal, in lines elsewhere, not at all when `quiet`."""
    if quiet:
        yield _ignore
    elif is_terminal():
        with Live(Spinner("dots", STARTING), console=console(), auto_refresh=True, transient=True) as live:
            yield LiveView(live)
    else:
        print(STARTING, flush=True)
        yield LineView()


def _ignore(event: Event) -> None:
    """Shows nothing."""


class LiveView:
    """Redraws the whole view on every tick."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._started: RunStarted | None = None
        self._improvements: list[str] = []
        self._best = 0.0

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self._started = event
            self._live.update(panels.header(event), refresh=True)
        elif isinstance(event, Judged):
            self._note(event)
        elif isinstance(event, Interrupted):
            self._improvements.append(STOPPING)
        elif isinstance(event, ModelsSilent):
            self._improvements.append(silence_line(event))
        elif isinstance(event, NoAnswer):
            self._improvements.append(no_answer_line(event))
        elif isinstance(event, CrewChanged):
            self._improvements.append(event.what)
        elif isinstance(event, Ticked) and self._started is not None:
            self._best = best_so_far(event.progress, self._best)
            size = self._live.console.size
            view = panels.dashboard(
                self._started, event.progress, self._improvements, width=size.width, height=size.height
            )
            self._live.update(view, refresh=True)

    def _note(self, event: Judged) -> None:
        line = improvement(event, self._best)
        latency = event.evaluation.verdict.latency
        if line and latency:
            self._best = latency.speedup
            self._improvements = [*self._improvements[-5:], line]


class LineView:
    """Prints each new best at once, and where the run stands every few seconds."""

    def __init__(self, every_s: float = LINE_EVERY_S) -> None:
        self._every_s = every_s
        self._last = time.monotonic()
        self._best = 0.0
        self._kind = LatencyKind.MEASURED

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self._kind = event.run.latency_kind
            print(start_line(event), *missing_lines(event), sep="\n", flush=True)
        elif isinstance(event, Judged):
            self._note(event)
        elif isinstance(event, Interrupted):
            print(STOPPING, flush=True)
        elif isinstance(event, ModelsSilent):
            print(silence_line(event), flush=True)
        elif isinstance(event, NoAnswer):
            print(no_answer_line(event), flush=True)
        elif isinstance(event, CrewChanged):
            print(event.what, flush=True)
        elif isinstance(event, Ticked):
            self._best = best_so_far(event.progress, self._best)
            if time.monotonic() - self._last >= self._every_s:
                self._last = time.monotonic()
                print(progress_line(event.progress, self._kind), flush=True)

    def _note(self, event: Judged) -> None:
        line = improvement(event, self._best)
        latency = event.evaluation.verdict.latency
        if line and latency:
            self._best = latency.speedup
            print(f"new best: {line}", flush=True)


def silence_line(event: ModelsSilent) -> str:
    """Why the search goes on without language models, or ends."""
    if event.ends_run:
        return f"no language model writes a first program: {event.reason}"
    return f"going on without language models: {event.reason}"


def no_answer_line(event: NoAnswer) -> str:
    """Why nothing happens."""
    return f"no first program yet, asking again: {event.reason}"


def start_line(event: RunStarted) -> str:
    """Which run this is, and what it has to beat."""
    run = event.run
    baseline = event.baselines_us.get(event.baseline_name)
    beat = f"{event.baseline_name} {format_us(baseline)} us {run.latency_kind}" if baseline else event.baseline_name
    verb = "resumed" if event.resumed else "started"
    return f"{verb} run {run.run_id}: {event.problem.name} on {run.hardware.name}, baseline {beat}"


def missing_lines(event: RunStarted) -> list[str]:
    """What of the sandbox this machine refuses, in a line; none where nothing is missing."""
    if not event.missing:
        return []
    return [f"sandbox without {', '.join(event.missing)}: `evolve doctor` says what to do"]


def best_so_far(progress: Progress, known: float) -> float:
    """The largest speed-up of a run: that of its earlier sittings too, which were not watched."""
    return known if progress.best is None else max(known, progress.best.speedup)


def improvement(event: Judged, best_speedup: float) -> str:
    """What a verdict improved, or the empty string: "1.42x, 551.1 us measured, num_warps on island 0: 4 -> 16"."""
    verdict, lineage = event.evaluation.verdict, event.evaluation.candidate.lineage
    latency = verdict.latency
    if latency is None or latency.speedup <= best_speedup:
        return ""
    detail = f": {lineage.detail}" if lineage.detail else ""
    return (
        f"{format_times(latency.speedup)}, {format_us(latency.device_us)} us {latency.kind}, "
        f"{lineage.technique or lineage.operator} on island {event.evaluation.candidate.island}{detail}"
    )


def progress_line(progress: Progress, kind: LatencyKind) -> str:
    """Where a run stands, in one line."""
    parts = [f"{format_seconds(progress.elapsed_s)}: {progress.n_judged} judged"]
    if progress.evaluations_left is not None:
        parts[0] += f" of {progress.n_judged + progress.evaluations_left}"
    parts.append(f"{progress.n_failed} failed, {progress.n_duplicates} repeated")
    parts.append(f"{progress.rate_per_min:.0f} a minute")
    if progress.best is not None:
        parts.append(f"best {format_times(progress.best.speedup)} {kind}")
    if progress.time_left_s is not None:
        parts.append(f"{format_seconds(progress.time_left_s)} left")
    return ", ".join(parts)
