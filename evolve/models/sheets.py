"""The table of a benchmark in words: sheets of text that the terminal, the Markdown file and the page print alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from evaluators.decomposition.classify import ModelOutcome
from evolve.models.figures import Bucket, Counted, Figures, Group, Spread
from evolve.models.rows import BenchRow
from evolve.models.table import BenchTable, ClassFigures, Setting

NOTHING = "-"
MOST_NAMES = 6  # of modules in a line of prose
SOFTWARE = ("driver", "torch", "triton", "python")  # the versions that a table names
TEXTS = frozenset({"outcome", "root cause", "dominant", "remarks", "why", "what"})  # columns that hold no figures


class Sheet(NamedTuple):
    """A table of text under a title. The first column names the row."""

    title: str
    lead: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def setting_lines(table: BenchTable) -> list[str]:
    """What the modules were run on, with which software, when and with how much budget; a line for those alike."""
    settings = table.settings
    if len(settings) < 2:
        return [_setting_words(one) for one in settings]
    lines = [f"{_names(one.modules)}: {_setting_words(one)}" for one in settings]
    is_mixed = len({one.hardware for one in settings}) > 1
    return [*lines, "Figures over all modules are over different GPUs."] if is_mixed else lines


def _names(modules: Sequence[str]) -> str:
    """All of a few, the first of many."""
    n_more = len(modules) - MOST_NAMES
    return ", ".join(modules[:MOST_NAMES]) + (f" and {n_more} more" if n_more > 0 else "")


def _setting_words(one: Setting) -> str:
    software = [f"{name} {one.versions[name]}" for name in SOFTWARE if name in one.versions]
    days = sorted({_day(at) for at in (one.first_at, one.last_at) if at is not None})
    return "; ".join(
        filter(
            None,
            (
                one.hardware or "a GPU that is not known",
                ", ".join(software),
                " to ".join(days),
                _budget_words(one),
            ),
        )
    )


def _budget_words(one: Setting) -> str:
    limits = [f"{one.evaluations} verdicts"] if one.evaluations is not None else []
    limits += [_duration(one.time_s)] if one.time_s is not None else []
    if not limits:
        return ""
    islands = f", {one.islands} island{'s' if one.islands != 1 else ''}" if one.islands else ""
    asked = f", with {', '.join(one.models)}" if one.models else ""
    return f"at most {' and '.join(limits)} for a module{islands}{asked}"


def module_sheet(rows: Sequence[BenchRow]) -> Sheet:
    """Every module with what became of it."""
    ways = list(dict.fromkeys(name for row in rows for name in row.against))
    columns = ("module", "level", "outcome", "root cause", "speed-up", *(f"over {way}" for way in ways), "dominant")
    return Sheet(
        "Modules",
        "Speed-up of what is delivered over the fastest baseline, and over each.",
        (*columns, "parts", "remarks"),
        tuple(_module_row(row, ways) for row in rows),
    )


def sheets_of(figures: ClassFigures) -> list[Sheet]:
    """The figures of one precision class, each over all of its modules and without degenerate problems."""
    both = (figures.all, figures.sound)
    return [
        _outcomes(both),
        _speedups(both),
        _against(both),
        _distribution(both),
        _groups("Dominant operation", "What takes the largest share of a module's device time.", both, "dominant"),
        *_levels(both),
        _fast_p(both),
        *_degenerate(figures),
        *_needless(figures),
    ]


Both = tuple[Figures, Figures]
Levels = Mapping[str, Group]
HEADS = ("all", "without degenerate")


def _module_row(row: BenchRow, ways: Sequence[str]) -> tuple[str, ...]:
    return (
        row.module,
        NOTHING if row.level is None else str(row.level),
        str(row.outcome) if row.outcome else "error",
        str(row.cause or NOTHING),
        times(row.speedup),
        *(times(row.against.get(way)) for way in ways),
        " ".join(filter(None, (row.dominant, percent(row.dominant_share) if row.dominant_share else ""))) or NOTHING,
        f"{row.n_used} of {row.n_parts}",
        "; ".join(_remarks(row)),
    )


def _remarks(row: BenchRow) -> Iterator[str]:
    if row.error or row.reason:
        yield row.error or row.reason
    if row.degenerate:
        yield f"degenerate: {row.degenerate}"
    if row.left_out:
        yield "needless work left out"


def _outcomes(both: Both) -> Sheet:
    rows = [("modules", *(str(f.n) for f in both))]
    rows += [(str(o), *(counted(f.outcomes[str(o)]) for f in both)) for o in ModelOutcome]
    rows += [(f"fallback, {cause}", *(counted(f.causes.get(cause)) for f in both)) for cause in both[0].causes]
    rows += [("could not be run", *(str(f.n_errors) for f in both)), ("valid", *(counted(f.valid) for f in both))]
    lead = (
        "Optimized is faster than the fastest baseline by more than 3%, matched within 3%. Valid: a program of the "
        "module was correct, faster or not."
    )
    return Sheet("Outcomes", lead, ("outcome", *HEADS), tuple(rows))


def _speedups(both: Both) -> Sheet:
    named: list[tuple[str, Callable[[Figures], Spread | None]]] = [
        ("delivered", lambda f: f.delivered),
        ("optimized", lambda f: f.optimized),
        ("programs", lambda f: f.programs),
    ]
    rows = [
        (f"{name}, {head}", *spread_cells(of(f))) for name, of in named for head, f in zip(HEADS, both, strict=True)
    ]
    lead = (
        "Over the fastest baseline. Delivered: of every module with an outcome, one that keeps its baseline counts as "
        "1. Programs: the fastest correct program of each module, whether it was delivered or not."
    )
    columns = ("modules", "n", "geometric mean", "mean", "median", "min", "max", "above 1", "below 1")
    roofline = [(f"roofline efficiency, {h}", *efficiency_cells(f.roofline)) for h, f in zip(HEADS, both, strict=True)]
    return Sheet("Speed-ups", lead, columns, (*rows, *(row for row in roofline if row[1] != "0")))


def _against(both: Both) -> Sheet:
    rows = []
    for name in both[0].against:
        for head, figures in zip(HEADS, both, strict=True):
            if (one := figures.against.get(name)) is not None:
                won = (str(one.n_wins), str(one.n_ties), str(one.n_losses))
                rows.append((f"{name}, {head}", *spread_cells(one.spread)[:6], *won))
    columns = ("baseline", "n", "geometric mean", "mean", "median", "min", "max", "wins", "ties", "losses")
    lead = (
        "What is delivered over each way of running the modules; one that keeps its baseline runs the fastest way, and "
        "wins over the slower ones. A win is faster by more than 3%, a tie within 3%."
    )
    return Sheet("Against each baseline", lead, columns, tuple(rows))


def _distribution(both: Both) -> Sheet:
    pairs = zip(both[0].distribution, both[1].distribution, strict=True)
    rows = tuple((bucket_words(one), counted(one.counted), counted(other.counted)) for one, other in pairs)
    return Sheet("Distribution", "Speed-ups of what is delivered.", ("speed-up", *HEADS), rows)


def _groups(title: str, lead: str, both: Both, field: str) -> Sheet:
    whole, sound = (getattr(figures, field) for figures in both)
    rows = tuple((name, *group_cells(group), *group_cells(sound.get(name))) for name, group in whole.items())
    heads = tuple(f"{column}, {head}" for head in HEADS for column in ("modules", "optimized", "geometric mean"))
    return Sheet(title, lead, (title.lower(), *heads), rows)


def _levels(both: Both) -> list[Sheet]:
    """Levels as groups; speed-ups, dominant operations and root causes by level."""
    levels = both[0].levels
    found = [_groups("Level", "Of KernelBench, as the module's folder says.", both, "levels"), _distribution_by(levels)]
    kinds, causes = list(both[0].dominant), list(both[0].causes)
    lead = "What takes the largest share of a module's device time, over all: modules of each kind."
    found.append(_tallies("Dominant operation by level", lead, levels, kinds, lambda group: group.dominant))
    if causes:
        lead = "Modules that fell back, over all."
        found.append(_tallies("Root causes by level", lead, levels, causes, lambda group: group.causes))
    return found


def _tallies(
    title: str, lead: str, levels: Levels, names: Sequence[str], of: Callable[[Group], dict[str, int]]
) -> Sheet:
    """How many modules of each level have each of some names."""
    rows = tuple((level, *(str(of(group).get(name, 0)) for name in names)) for level, group in levels.items())
    return Sheet(title, lead, ("level", *names), rows)


def _distribution_by(levels: Levels) -> Sheet:
    buckets = next(iter(levels.values())).distribution if levels else ()
    rows = tuple((level, *(str(b.counted.n) for b in group.distribution)) for level, group in levels.items())
    lead = "Speed-ups of what is delivered, over all: modules in each range."
    return Sheet("Speed-ups by level", lead, ("level", *map(bucket_words, buckets)), rows)


def _fast_p(both: Both) -> Sheet:
    lead = "The share of modules that are correct and faster than p times the baseline."
    rows = [(f"fastest baseline, {h}", *map(percent, f.fast_p.values())) for h, f in zip(HEADS, both, strict=True)]
    rows += [
        (f"{name}, {head}", *map(percent, figures.against[name].fast_p.values()))
        for name in both[0].against
        for head, figures in zip(HEADS, both, strict=True)
        if name in figures.against
    ]
    return Sheet("fast_p", lead, ("over", *(f"p = {p}" for p in both[0].fast_p)), tuple(rows))


def _degenerate(figures: ClassFigures) -> list[Sheet]:
    if not figures.degenerate:
        return []
    lead = "Their answers hardly depend on the work, as their reference showed when it ran."
    return [Sheet("Degenerate problems", lead, ("module", "why"), tuple(figures.degenerate.items()))]


def _needless(figures: ClassFigures) -> list[Sheet]:
    if not figures.needless:
        return []
    others = figures.lean.delivered
    geomean = times(others.geomean if others else None)
    lead = (
        "They ask for work that no answer needs, and what is delivered leaves it out: that says more about them than "
        f"about kernels. The geometric mean over the others that are not degenerate is {geomean}."
    )
    return [Sheet("Needless work", lead, ("module", "what"), tuple(figures.needless.items()))]


# --------------------------------------------------------------------------------------------------------------- words


def times(ratio: float | None) -> str:
    """A speed-up: 1.54x."""
    return NOTHING if ratio is None else f"{ratio:.2f}x"


def percent(share: float) -> str:
    return f"{share:.0%}"


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


def _duration(seconds: float) -> str:
    """1h02m, 2m, 90s."""
    minutes, rest = divmod(round(seconds), 60)
    if rest or not minutes:
        return f"{round(seconds)}s"
    return f"{minutes // 60}h{minutes % 60:02d}m" if minutes >= 60 else f"{minutes}m"


def counted(found: Counted | None) -> str:
    """How many, and their share: 3 (18%)."""
    return "0 (0%)" if found is None else f"{found.n} ({percent(found.share)})"


def spread_cells(spread: Spread | None) -> tuple[str, ...]:
    """n, geometric mean, mean, median, least, most, shares above and below 1."""
    if spread is None:
        return ("0", *[NOTHING] * 7)
    ratios = (spread.geomean, spread.mean, spread.median, spread.smallest, spread.largest)
    return (str(spread.n), *map(times, ratios), percent(spread.share_above), percent(spread.share_below))


def efficiency_cells(spread: Spread | None) -> tuple[str, ...]:
    """As `spread_cells`, of shares of the speed of light."""
    if spread is None:
        return ("0", *[NOTHING] * 7)
    shares = (spread.geomean, spread.mean, spread.median, spread.smallest, spread.largest)
    return (str(spread.n), *map(percent, shares), NOTHING, NOTHING)


def group_cells(group: Group | None) -> tuple[str, str, str]:
    """Modules, optimized ones, geometric mean."""
    if group is None:
        return ("0", "0", NOTHING)
    return str(group.n), str(group.outcomes.get(ModelOutcome.OPTIMIZED, 0)), times(group.geomean)


def bucket_words(bucket: Bucket) -> str:
    """Its bounds: "up to 0.97", "1.03 to 1.10", "above 3.00"."""
    if bucket.low is None:
        return f"up to {bucket.high:.2f}"
    return f"above {bucket.low:.2f}" if bucket.high is None else f"{bucket.low:.2f} to {bucket.high:.2f}"
