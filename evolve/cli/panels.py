"""The parts of the live view: records in, rich renderables out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from db.measures import BINS_PER_OCTAVE, TIERS, MeasureSpace
from db.records import LatencyKind
from evolve.cli.console import format_seconds, format_times, format_us
from evolve.events import Progress, RunStarted
from islands.summary import CellSummary, IslandSummary

MAX_ISLANDS = 12
MAX_WIDTH = 140
TIER_WIDTH = 15
_SPACE = MeasureSpace()


def dashboard(started: RunStarted, progress: Progress, improvements: Sequence[str], *, width: int) -> RenderableType:
    """The whole view."""
    kind = started.run.latency_kind
    baseline_us = started.baselines_us.get(started.baseline_name)
    cells = [cell for island in progress.islands for cell in island.cells]
    parts: list[RenderableType] = [
        header(started),
        standing(started, progress),
        budget_bar(progress, width=min(width, 100)),
        Text(),
        Columns([islands_table(progress.islands, kind), funnel_table(progress)], padding=(0, 4)),
        Text(),
        heat_map(cells, kind=kind, baseline_us=baseline_us, width=min(width - 3, MAX_WIDTH)),
    ]
    if improvements:
        parts.append(Text())
        parts.append(Text("\n".join(improvements[-4:]), style="dim", overflow="ellipsis", no_wrap=True))
    # narrower than the terminal: the ^C that a terminal echoes must not begin a line of its own
    return Panel(Group(*parts), border_style="dim", padding=(0, 1), width=min(width - 3, MAX_WIDTH))


def header(started: RunStarted) -> Text:
    """Problem, hardware, kind of latency, what has to be beaten."""
    run = started.run
    baseline = started.baselines_us.get(started.baseline_name)
    text = Text.assemble(
        (started.problem.name, "bold"), f" on {run.hardware.name}  ", (run.latency_kind, _style(run.latency_kind))
    )
    text.append(f"  {run.precision} precision  run {run.run_id}", style="dim")
    if baseline is not None:
        text.append(f"\nbaseline {started.baseline_name} {format_us(baseline)} us {run.latency_kind}")
    return text


def _style(kind: LatencyKind) -> str:
    return "black on yellow" if kind is LatencyKind.MODELLED else "black on green"


def standing(started: RunStarted, progress: Progress) -> Text:
    """The best so far and how fast the run goes."""
    text = Text()
    if progress.best is None:
        text.append("best: nothing correct yet", style="yellow")
    else:
        best = progress.best
        text.append(f"best {format_times(best.speedup)}", style="bold green" if best.speedup > 1 else "bold")
        text.append(f"  {format_us(best.latency_us)} us {started.run.latency_kind}  ")
        text.append(f"{best.technique} on island {best.island}, {best.program_id[:12]}", style="dim")
    text.append(
        f"\n{progress.n_judged} judged, {progress.n_failed} failed, {progress.n_duplicates} repeated, "
        f"{progress.rate_per_min:.0f} a minute"
    )
    return text


def budget_bar(progress: Progress, *, width: int) -> RenderableType:
    """How much of the budget is spent: of verdicts or of time, whichever is nearer its end."""
    shares = [0.0]
    if progress.evaluations_left is not None:
        shares.append(progress.n_judged / max(1, progress.n_judged + progress.evaluations_left))
    if progress.time_left_s is not None:
        shares.append(progress.elapsed_s / max(1e-9, progress.elapsed_s + progress.time_left_s))
    words = format_seconds(progress.elapsed_s)
    left = time_left(progress)
    if left is not None:
        words += f", about {format_seconds(left)} left"
    grid = Table.grid(padding=(0, 1))
    grid.add_row(ProgressBar(total=1.0, completed=max(shares), width=max(10, width - 40)), Text(words))
    return grid


def time_left(progress: Progress) -> float | None:
    """Seconds until the nearer of the two limits, as the rate of now has it; None when there is no telling."""
    limits = [] if progress.time_left_s is None else [progress.time_left_s]
    if progress.evaluations_left is not None and progress.rate_per_min > 0:
        limits.append(60 * progress.evaluations_left / progress.rate_per_min)
    return min(limits, default=None)


def islands_table(islands: Sequence[IslandSummary], kind: LatencyKind) -> Table:
    """One line an island."""
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("island", justify="right")
    for title in ("told", "in flight", f"best {kind}", "cells", "QD", "idle"):
        table.add_column(title, justify="right")
    for island in islands[:MAX_ISLANDS]:
        best = "" if island.best_speedup is None else format_times(island.best_speedup)
        idle = Text(str(island.n_idle), style="yellow" if island.is_stagnant else "")
        table.add_row(
            str(island.island),
            str(island.n_told),
            str(island.n_in_flight),
            best,
            str(len(island.cells)),
            f"{island.qd_score:.1f}",
            idle,
        )
    if len(islands) > MAX_ISLANDS:
        table.add_row("", Text(f"and {len(islands) - MAX_ISLANDS} more", style="dim"))
    return table


def funnel_table(progress: Progress) -> Table:
    """What each gate was asked and let through."""
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("gate")
    table.add_column("asked", justify="right")
    table.add_column("passed", justify="right")
    table.add_column("")
    most = max((count.asked for count in progress.funnel.values()), default=1)
    for gate, count in progress.funnel.items():
        length = math.floor(16 * count.passed / most)
        refused = math.ceil(16 * (count.asked - count.passed) / most)
        bar = Text.assemble(("█" * length, "green"), ("█" * refused, "red"))
        table.add_row(gate, str(count.asked), str(count.passed), bar)
    return table


# ---------------------------------------------------------------------------------------------------------- heat map


def heat_map(
    cells: Sequence[CellSummary], *, kind: LatencyKind, baseline_us: float | None, width: int
) -> RenderableType:
    """Tier by latency over all islands; a cell's shade is its speed-up. Faster to the left."""
    if not cells:
        return Text("grid: empty", style="dim")
    best: dict[tuple[str, int], float] = {}
    for cell in cells:
        key = (cell.tier.value, cell.latency_bin)
        best[key] = max(cell.speedup, best.get(key, 0.0))
    bins = [latency_bin for _, latency_bin in best]
    base_bin = _SPACE.latency_bin_of(baseline_us) if baseline_us else None
    low, high = min(bins), max([*bins, *([base_bin] if base_bin is not None else [])])
    high = min(high, low + (width - TIER_WIDTH - 8) // 2)
    lines = [_heat_row(tier.value, best, low, high, base_bin) for tier in TIERS]
    return Group(*lines, _heat_axis(low, high, kind))


def _heat_row(tier: str, best: dict[tuple[str, int], float], low: int, high: int, base_bin: int | None) -> Text:
    line = Text(tier.replace("_", " ").ljust(TIER_WIDTH))
    for latency_bin in range(low, high + 1):
        speedup = best.get((tier, latency_bin))
        if speedup is not None:
            line.append(shade(speedup) * 2, style=colour(speedup))
        else:
            line.append("┊ " if latency_bin == base_bin else "· ", style="dim")
    return line


def _heat_axis(low: int, high: int, kind: LatencyKind) -> Text:
    line = ""
    for latency_bin in range(low, high + 1):
        at = 2 * (latency_bin - low)
        if len(line) <= at and (latency_bin - low) % 4 == 0:
            line = line.ljust(at) + f"{2 ** (latency_bin / BINS_PER_OCTAVE):.4g} "
    return Text(" " * TIER_WIDTH + line + f" us {kind}; ┊ baseline", style="dim")


def shade(speedup: float) -> str:
    """A block that is the fuller the faster, so that the map reads without colours too."""
    limits = (0.8, 1.0, 1.25)
    return "░▒▓█"[sum(speedup >= limit for limit in limits)]


def colour(speedup: float) -> str:
    """Red below the baseline, green above, full at half and twice its speed."""
    share = min(1.0, abs(speedup - 1) if speedup >= 1 else (1 / speedup - 1)) ** 0.7
    grey, full = (120, 125, 125), (20, 200, 130) if speedup >= 1 else (215, 90, 70)
    red, green, blue = (round(g + share * (f - g)) for g, f in zip(grey, full, strict=True))
    return f"rgb({red},{green},{blue})"
