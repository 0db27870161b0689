"""Pictures of a run as inline SVG: facts in, markup out. Colours are CSS variables of the page, so themes apply."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from db.measures import BINS_PER_OCTAVE, TIERS
from evolve.reports.facts import CellFact, Point, running_best

N_ISLAND_COLOURS = 8


@dataclass(frozen=True)
class Scale:
    """Maps [low, high] of the data to [start, end] of the picture, linearly."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, about: int = 5) -> list[float]:
        """Round values inside the range, 1, 2 or 5 times a power of ten apart."""
        span = (self.high - self.low) or 1.0
        rough = span / about
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [round(k * step, 10) for k in range(first, math.floor(self.high / step + 1e-9) + 1)]


# ------------------------------------------------------------------------------------------------------ convergence

WIDTH, HEIGHT = 560, 330
LEFT, RIGHT, TOP, BOTTOM = 56, 538, 18, 284
MAX_DOTS = 1500


def convergence(points: Sequence[Point], *, over: str, floor_speedup: float | None = None) -> Markup:
    """Best speed-up so far, of the run and of each island, over `evaluations` or `seconds`. Empty without points."""
    x_of = _x_of(over)
    if not points:
        return Markup("")
    best = running_best(points)
    y = _speedup_scale(points, best, floor_speedup)
    x = Scale(0.0, max(x_of(p) for p in points), LEFT, RIGHT)
    parts = [
        *_axes(x, y, "candidates judged" if over == "evaluations" else "seconds since the start"),
        *_rulers(y, floor_speedup),
        *_dots(points, x, y, x_of),
        *_island_lines(points, x, y, x_of),
        _step_line(best, x, y, x_of, css="best-line"),
        *_milestones(best, x, y, x_of),
    ]
    label = f"Best speed-up over {over}, ending at {best[-1].speedup:.2f} times the baseline"
    return _svg(WIDTH, HEIGHT, label, parts, css="plot")


def _x_of(over: str) -> Callable[[Point], float]:
    if over == "evaluations":
        return lambda point: float(point.n)
    return lambda point: point.seconds


def _speedup_scale(points: Sequence[Point], best: Sequence[Point], floor_speedup: float | None) -> Scale:
    top = best[-1].speedup
    if floor_speedup and top < floor_speedup < 1.35 * top:
        top = floor_speedup
    starts = [min(best[0].speedup, 1.0), *(p.speedup for p in points if p.speedup > 0.7 * best[0].speedup)]
    low, high = min(starts), max(top, 1.0)
    pad = 0.06 * max(high - low, 0.1)
    return Scale(max(0.0, low - pad), high + pad, BOTTOM, TOP)


def _axes(x: Scale, y: Scale, title: str) -> Iterable[Markup]:
    values = y.ticks()
    decimals = max(len(f"{value:g}".partition(".")[2]) for value in values)
    for value in values:
        yield _line(LEFT, y(value), RIGHT, y(value), "gridline")
        yield _text(LEFT - 8, y(value) + 4, f"{value:.{decimals}f}×", "tick end")
    for value in x.ticks():
        yield _text(x(value), BOTTOM + 19, f"{value:g}", "tick middle")
    yield _line(LEFT, BOTTOM, RIGHT, BOTTOM, "axis")
    yield _text((LEFT + RIGHT) / 2, HEIGHT - 8, title, "axis-title middle")


def _rulers(y: Scale, floor_speedup: float | None) -> Iterable[Markup]:
    rulers = [(1.0, "baseline", "ruler-baseline"), (floor_speedup, "physical floor", "ruler-floor")]
    for value, name, css in rulers:
        if value and y.low <= value <= y.high:
            yield _line(LEFT, y(value), RIGHT, y(value), f"ruler {css}")
            yield _text(RIGHT, y(value) - 5, name, f"ruler-name {css} end")


def _dots(points: Sequence[Point], x: Scale, y: Scale, x_of: Callable[[Point], float]) -> Iterable[Markup]:
    inside = [p for p in points if p.speedup >= y.low]
    stride = max(1, math.ceil(len(inside) / MAX_DOTS))
    for p in inside[::stride]:
        yield Markup('<circle class="dot" cx="{}" cy="{}" r="2"/>').format(x(x_of(p)), y(p.speedup))


def _island_lines(points: Sequence[Point], x: Scale, y: Scale, x_of: Callable[[Point], float]) -> Iterable[Markup]:
    islands = sorted({p.island for p in points})
    if len(islands) < 2:
        return
    for island in islands:
        mine = running_best(p for p in points if p.island == island and p.speedup >= y.low)
        yield _step_line(mine, x, y, x_of, css=f"island-line i{island % N_ISLAND_COLOURS}", title=f"island {island}")


def _step_line(
    best: Sequence[Point], x: Scale, y: Scale, x_of: Callable[[Point], float], *, css: str, title: str = "all islands"
) -> Markup:
    """A staircase through the points that were best so far, drawn on to the right edge."""
    if not best:
        return Markup("")
    path = f"M{x(x_of(best[0]))} {y(best[0].speedup)}"
    path += "".join(f"H{x(x_of(p))}V{y(p.speedup)}" for p in best[1:]) + f"H{RIGHT}"
    return Markup('<path class="{}" d="{}"><title>{}</title></path>').format(css, path, title)


def _milestones(best: Sequence[Point], x: Scale, y: Scale, x_of: Callable[[Point], float]) -> Iterable[Markup]:
    for p in best:
        told = f"{p.speedup:.3f}× at candidate {p.n}: {p.technique}, island {p.island}"
        yield Markup('<circle class="milestone" cx="{}" cy="{}" r="3.2"><title>{}</title></circle>').format(
            x(x_of(p)), y(p.speedup), told
        )


# ---------------------------------------------------------------------------------------------------------- heat map

CELL_HEIGHT, ROW_LABELS, HEAT_WIDTH, HEAT_RIGHT, HEAT_TOP = 46, 132, 1080, 1058, 30


def heat_map(cells: Sequence[CellFact], *, baseline_us: float | None, best_program: str = "") -> Markup:
    """The grid, tier by latency: colour is the speed-up of a cell's fastest program. Empty without cells."""
    if not cells:
        return Markup("")
    bins = [c.cell.latency_bin for c in cells]
    shown = [] if baseline_us is None else [math.floor(BINS_PER_OCTAVE * math.log2(baseline_us))]
    low, high = min(bins + shown) - 1, max(bins + shown) + 1
    width = (HEAT_RIGHT - ROW_LABELS) / (high - low + 1)
    x = Scale(low, high + 1, ROW_LABELS, HEAT_RIGHT)
    height = HEAT_TOP + CELL_HEIGHT * len(TIERS) + 48
    parts = [
        *_heat_rows(x, low, high, width),
        *(_heat_cell(c, x, width, c.program_id == best_program) for c in cells),
        *_heat_axis(x, low, high, width, cells[0].latency.kind),
        *_heat_baseline(x, baseline_us),
    ]
    return _svg(HEAT_WIDTH, height, "Fastest program of every cell: bottleneck tier by latency", parts, css="heat")


def _row_y(tier_index: int) -> float:
    return HEAT_TOP + CELL_HEIGHT * tier_index


def _heat_rows(x: Scale, low: int, high: int, width: float) -> Iterable[Markup]:
    for row, tier in enumerate(TIERS):
        yield _text(0, _row_y(row) + CELL_HEIGHT / 2 + 4, tier.replace("_", " "), "row-name")
        for k in range(low, high + 1):
            yield _rect(x(k), _row_y(row), width, "cell-empty")


def _heat_cell(fact: CellFact, x: Scale, width: float, is_best: bool) -> Markup:
    us, speedup = fact.latency.device_us, fact.latency.speedup
    left, top = x(fact.cell.latency_bin), _row_y(TIERS.index(fact.cell.tier))
    told = (
        f"{fact.cell.tier.replace('_', ' ')}: {us:.2f} µs {fact.latency.kind}, {speedup:.2f}× by {fact.technique}; "
        f"{fact.n_programs} programs, {fact.program_id[:8]}"
    )
    css = "cell-best" if is_best else ""
    rect = Markup('<rect class="cell {}" x="{}" y="{}" width="{:.1f}" height="{}" rx="4" style="fill:{}"/>').format(
        css, left + 1, top + 1, width - 2, CELL_HEIGHT - 2, heat_colour(speedup)
    )
    label = Markup("")
    if width >= 34:
        label = _text(left + width / 2, top + CELL_HEIGHT / 2 + 4, f"{speedup:.2f}", "cell-value middle")
    return Markup("<g><title>{}</title>{}{}</g>").format(told, rect, label)


def heat_colour(speedup: float) -> str:
    """CSS colour: neutral at the baseline, full at twice as fast (or twice as slow), on a logarithmic scale."""
    share = round(100 * min(abs(math.log2(speedup)), 1.0) ** 0.75)
    side = "--fast" if speedup >= 1 else "--slow"
    return f"color-mix(in oklab, var({side}) {max(share, 6)}%, var(--neutral))"


def _heat_axis(x: Scale, low: int, high: int, width: float, kind: str) -> Iterable[Markup]:
    bottom = _row_y(len(TIERS))
    stride = max(1, math.ceil(58 / width))
    for k in range(low, high + 2, stride):
        yield _text(x(k), bottom + 18, _short(2 ** (k / BINS_PER_OCTAVE)), "tick middle")
    title = f"{kind} device latency, µs (faster to the left)"
    yield _text((ROW_LABELS + HEAT_RIGHT) / 2, bottom + 40, title, "axis-title middle")


def _short(latency_us: float) -> str:
    """Three digits at least, and no exponent: 7.34, 68.6, 1024."""
    return f"{latency_us:.{max(0, 2 - math.floor(math.log10(max(latency_us, 0.01))))}f}"


def _heat_baseline(x: Scale, baseline_us: float | None) -> Iterable[Markup]:
    if baseline_us is None:
        return
    at = x(BINS_PER_OCTAVE * math.log2(baseline_us))
    yield _line(at, HEAT_TOP - 8, at, _row_y(len(TIERS)), "ruler ruler-baseline")
    yield _text(at, HEAT_TOP - 13, "baseline", "ruler-name ruler-baseline middle")


# ------------------------------------------------------------------------------------------------------------ shapes


def _svg(width: float, height: float, label: str, parts: Iterable[Markup], *, css: str) -> Markup:
    body = Markup("").join(parts)
    return Markup('<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        css, width, height, label, body
    )


def _line(x1: float, y1: float, x2: float, y2: float, css: str) -> Markup:
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(css, x1, y1, x2, y2)


def _rect(x: float, y: float, width: float, css: str) -> Markup:
    return Markup('<rect class="{}" x="{}" y="{}" width="{:.1f}" height="{}" rx="4"/>').format(
        css, x + 1, y + 1, width - 2, CELL_HEIGHT - 2
    )


def _text(x: float, y: float, content: str, css: str) -> Markup:
    return Markup('<text class="{}" x="{}" y="{}">{}</text>').format(css, round(x, 1), round(y, 1), escape(content))
