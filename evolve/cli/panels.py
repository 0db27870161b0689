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
_FIXED_LINES = 15  # border, header, standing, budget, heat map, blank lines, and one for the cursor
_SIDE_BY_SIDE = 97  # columns that both tables take
_FEW = 2  # islands that are shown whatever the height
_NEWS = 3  # lines that improvements get before islands do
_SPACE = MeasureSpace()


def dashboard(
    started: RunStarted, progress: Progress, improvements: Sequence[str], *, width: int, height: int
) -> RenderableType:
    """The whole view, in `width` columns and, from 24 on, in `height` lines."""
    kind = started.run.latency_kind
    baseline_us = started.baselines_us.get(started.baseline_name)
    cells = [cell for island in progress.islands for cell in island.cells]
    # narrower than the terminal: the ^C that a terminal echoes must not begin a line of its own
    outer = min(width - 3, MAX_WIDTH)
    tables, n_lines = _tables(progress, kind, width=outer - 4, height=height - _FIXED_LINES)
    parts: list[RenderableType] = [
        header(started),
        standing(started, progress),
        budget_bar(progress, width=min(width, 100)),
        Text(),
        tables,
        Text(),
        heat_map(cells, kind=kind, baseline_us=baseline_us, width=outer),
    ]
    n_improvements = min(4, height - _FIXED_LINES - n_lines - 1)
    if improvements and n_improvements > 0:
        parts.append(Text())
        parts.append(Text("\n".join(improvements[-n_improvements:]), style="dim", overflow="ellipsis", no_wrap=True))
    return Panel(Group(*parts), border_style="dim", padding=(0, 1), width=outer)


def _tables(progress: Progress, kind: LatencyKind, *, width: int, height: int) -> tuple[RenderableType, int]:
    """Islands and gates, side by side or, where there is no room, the gates in words; and how many lines they take."""
    if width >= _SIDE_BY_SIDE:
        n_islands = max(_FEW, min(MAX_ISLANDS, height - 1 - _NEWS))
        tables = [islands_table(progress.islands, kind, n_islands), funnel_table(progress)]
        return Columns(tables, padding=(0, 4)), 1 + max(min(n_islands, len(progress.islands)), len(progress.funnel))
    gates = _gate_lines(progress, width)
    n_islands = max(_FEW, min(MAX_ISLANDS, height - 1 - len(gates) - _NEWS))
    table = islands_table(progress.islands, kind, n_islands)
    n_lines = 1 + min(n_islands, len(progress.islands)) + len(gates)
    return Group(table, *(Text(line, style="dim", no_wrap=True) for line in gates)), n_lines


def _gate_lines(progress: Progress, width: int) -> list[str]:
    """What each gate let through of what it was asked, in as many lines as `width` makes of it."""
    lines = [""]
    for gate, count in progress.funnel.items():
        text = f"{gate} {count.passed}/{count.asked}"
        if lines[-1] and len(lines[-1]) + 3 + len(text) > width:
            lines.append("")
        lines[-1] += f"   {text}" if lines[-1] else text
    return lines


def header(started: RunStarted) -> Text:
    """Problem, hardware, kind of latency, what has to be beaten."""
    run = started.run
    baseline = started.baselines_us.get(started.baseline_name)
    text = Text.assemble(
        (started.problem.name, "bold"), f" on {run.hardware.name}  ", (run.latency_kind, _style(run.latency_kind))
    )
    text.append(f"  {run.precision} precision\nrun {run.run_id}", style="dim")
    if baseline is not None:
        text.append(f"  baseline {started.baseline_name} {format_us(baseline)} us {run.latency_kind}")
    if started.missing:
        text.append(f"\nsandbox without {', '.join(started.missing)}: see evolve doctor", style="yellow")
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


def islands_table(islands: Sequence[IslandSummary], kind: LatencyKind, n_most: int) -> Table:
    """One line an island, in `n_most` lines below the titles."""
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("island", justify="right")
    for title in ("told", "in flight", f"best {kind}", "cells", "QD", "idle"):
        table.add_column(title, justify="right")
    n_shown = len(islands) if len(islands) <= n_most else n_most - 1
    for island in islands[:n_shown]:
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
    if len(islands) > n_shown:
        table.add_row("", Text(f"and {len(islands) - n_shown} more", style="dim", no_wrap=True))
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
