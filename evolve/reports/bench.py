"""The page of a benchmark over many modules: the sheets of its table, bars of the distribution and the fast_p curve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from markupsafe import Markup

from evolve.models.figures import Figures
from evolve.models.sheets import TEXTS, bucket_words, module_sheet, percent, setting_lines, sheets_of, times
from evolve.models.table import BenchTable
from evolve.reports.charts import Scale
from evolve.reports.pages import environment

WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 538, 18, 254
LEAST_SPAN = 1.2  # the curve is drawn up to this speed-up at least


def page_of(table: BenchTable, links: Mapping[str, str] | None = None) -> str:
    """One self-contained HTML page. The same table and links give the same page.

    Args:
        links: addresses of modules' own pages, by their names.
    """
    classes = [
        {
            "figures": figures,
            "sheets": sheets_of(figures),
            "curve": fast_p_picture([("all", figures.all), ("without degenerate", figures.sound)]),
            "bars": bars_of(figures.all),
        }
        for figures in table.classes
    ]
    template = environment(times=times, percent=percent).get_template("bench.html.j2")
    return template.render(
        table=table,
        settings=setting_lines(table),
        modules=module_sheet(table.rows),
        classes=classes,
        texts=TEXTS,
        links=links or {},
    )


def bars_of(figures: Figures) -> list[tuple[str, int, float]]:
    """Every bucket with its count and its width in percent of the widest."""
    most = max((bucket.counted.n for bucket in figures.distribution), default=0) or 1
    return [(bucket_words(b), b.counted.n, round(100 * b.counted.n / most, 2)) for b in figures.distribution]


def fast_p_picture(named: Sequence[tuple[str, Figures]]) -> Markup:
    """fast_p over p as staircases, one for each name. Empty where no module is faster than its baseline."""
    curves = [(name, figures.fast_p_curve) for name, figures in named]
    if not any(share for _, curve in curves for _, share in curve):
        return Markup("")
    last = max(p for _, curve in curves for p, _ in curve)
    x, y = Scale(1.0, max(last, LEAST_SPAN), LEFT, RIGHT), Scale(0.0, 1.0, BOTTOM, TOP)
    parts = [*_axes(x, y), *(_stairs(curve, name, n, x, y) for n, (name, curve) in enumerate(curves))]
    label = "Share of modules that are correct and faster than p times the fastest baseline, over p"
    return Markup('<svg class="plot" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, HEIGHT, label, Markup("").join(parts)
    )


def _axes(x: Scale, y: Scale) -> Iterable[Markup]:
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        yield Markup('<line class="gridline" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(LEFT, y(share), RIGHT, y(share))
        yield Markup('<text class="tick end" x="{}" y="{}">{}</text>').format(LEFT - 8, y(share) + 4, percent(share))
    for p in x.ticks():
        yield Markup('<text class="tick middle" x="{}" y="{}">{:g}</text>').format(x(p), BOTTOM + 19, p)
    middle = (LEFT + RIGHT) / 2
    yield Markup('<text class="axis-title middle" x="{}" y="{}">p</text>').format(middle, HEIGHT - 6)


def _stairs(curve: Sequence[tuple[float, float]], name: str, index: int, x: Scale, y: Scale) -> Markup:
    """From 1 to the right: level up to each p, then down to its share."""
    path = f"M{x(curve[0][0])} {y(curve[0][1])}" + "".join(f"H{x(p)}V{y(share)}" for p, share in curve[1:])
    css = f"island-line i{index}"
    return Markup('<path class="{}" d="{}H{}"><title>{}</title></path>').format(css, path, RIGHT, name)
