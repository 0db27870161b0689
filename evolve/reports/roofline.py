"""The roofline in percent of its ceilings: how near programs are to the bandwidth and to the arithmetic of the GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from markupsafe import Markup, escape

from db.measures import NEAR_OPTIMAL_ABOVE_PCT, UNDERUTILIZED_BELOW_PCT
from evolve.reports.charts import Scale
from evolve.reports.limits import CeilingPoint

WIDTH, HEIGHT = 560, 380
LEFT, RIGHT, TOP, BOTTOM = 56, 538, 18, 334


def roofline(points: Sequence[CeilingPoint]) -> Markup:
    """Memory against compute, both in percent of the speed of light; the ancestors of the best as a numbered path.

    The right and the upper edge are the ceilings. Empty without points.
    """
    if not points:
        return Markup("")
    x, y = Scale(0.0, 100.0, LEFT, RIGHT), Scale(0.0, 100.0, BOTTOM, TOP)
    path = [p for p in points if p.step]
    parts = [
        *_regions(x, y),
        *_axes(x, y),
        *(_dot(p, x, y) for p in points if not p.step),
        *_path(path, x, y),
        *(_ancestor(p, x, y, is_best=p is path[-1]) for p in path),
    ]
    label = "Programs between the ceilings of memory and compute, in percent of the speed of light"
    return Markup('<svg class="plot roofline" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, HEIGHT, label, Markup("").join(parts)
    )


def _regions(x: Scale, y: Scale) -> Iterable[Markup]:
    """Where the tiers lie: the inner square is underutilized, beyond the outer lines is near optimal."""
    inner, outer = UNDERUTILIZED_BELOW_PCT, NEAR_OPTIMAL_ABOVE_PCT
    rectangle = '<rect class="{}" x="{}" y="{}" width="{:.1f}" height="{:.1f}"/>'
    for css, left, top, right, bottom in (
        ("region near-optimal", outer, 100, 100, 0),
        ("region near-optimal", 0, 100, outer, outer),
        ("region underutilized", 0, inner, inner, 0),
    ):
        yield Markup(rectangle).format(css, x(left), y(top), x(right) - x(left), y(bottom) - y(top))
    yield _text(x(outer) - 6, y(3), "memory bound", "region-name end")
    yield _text(x(2), y(outer) + 16, "compute bound", "region-name")
    yield _text(x(2), y(3), "underutilized", "region-name")
    yield _text(x(100) - 6, y(100) + 16, "near optimal", "region-name end")


def _axes(x: Scale, y: Scale) -> Iterable[Markup]:
    line = '<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>'
    for pct in range(0, 101, 20):
        yield _text(x(pct), BOTTOM + 19, f"{pct}%", "tick middle")
        yield _text(LEFT - 8, y(pct) + 4, f"{pct}%", "tick end")
    yield Markup(line).format("axis", LEFT, BOTTOM, RIGHT, BOTTOM)
    yield Markup(line).format("axis", LEFT, BOTTOM, LEFT, TOP)
    yield Markup(line).format("ceiling", RIGHT, BOTTOM, RIGHT, TOP)
    yield Markup(line).format("ceiling", LEFT, TOP, RIGHT, TOP)
    yield _text((LEFT + RIGHT) / 2, HEIGHT - 8, "memory, of its speed of light (compute upwards)", "axis-title middle")


def _path(path: Sequence[CeilingPoint], x: Scale, y: Scale) -> Iterable[Markup]:
    line = '<line class="path" x1="{}" y1="{}" x2="{}" y2="{}"/>'
    for a, b in pairwise(path):
        yield Markup(line).format(x(a.memory_pct), y(a.compute_pct), x(b.memory_pct), y(b.compute_pct))


def _dot(point: CeilingPoint, x: Scale, y: Scale) -> Markup:
    return Markup('<circle class="dot" cx="{}" cy="{}" r="2.4"><title>{}</title></circle>').format(
        x(point.memory_pct), y(point.compute_pct), _told(point)
    )


def _ancestor(point: CeilingPoint, x: Scale, y: Scale, *, is_best: bool) -> Markup:
    left, top = x(point.memory_pct), y(point.compute_pct)
    circle = Markup('<circle class="{}" cx="{}" cy="{}" r="8"><title>{}</title></circle>').format(
        "ancestor best" if is_best else "ancestor", left, top, _told(point)
    )
    return circle + _text(left, top + 3.5, str(point.step), "step middle")


def _told(point: CeilingPoint) -> str:
    return (
        f"{point.program_id[:8]}: memory {point.memory_pct:.0f}%, compute {point.compute_pct:.0f}%, "
        f"{point.latency_us:.2f} µs ({point.source})"
    )


def _text(x: float, y: float, content: str, css: str) -> Markup:
    return Markup('<text class="{}" x="{}" y="{}">{}</text>').format(css, round(x, 1), round(y, 1), escape(content))
