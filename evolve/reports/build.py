"""From an archive's records to the page: `build_report` returns it, `write_report` puts it on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from db.reading import ArchiveReader
from evolve.reports import charts
from evolve.reports.facts import ReportFacts, gather
from evolve.reports.highlight import diff_lines, source_html
from evolve.reports.pages import environment
from evolve.reports.roofline import roofline


def build_report(archive: ArchiveReader, run_id: str) -> str:
    """The report of a run as one HTML page. The same records give the same page.

    Raises:
        NotFoundError: the archive holds no such run.
    """
    run = archive.run(run_id)
    facts = gather(archive.problem(run.problem_id), run, archive.evaluations(run_id))
    opinions = archive.opinions(facts.best.candidate.program_id) if facts.best else []
    return render(replace(facts, opinion=next(iter(opinions), None)))


def write_report(archive: ArchiveReader, run_id: str, directory: Path) -> Path:
    """Writes the report of a run to `directory`/report.html and returns that path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "report.html"
    path.write_text(build_report(archive, run_id), encoding="utf-8")
    return path


def render(facts: ReportFacts) -> str:
    """The page for the facts."""
    return environment().get_template("report.html.j2").render(facts=facts, **_pictures(facts), **_texts(facts))


def _pictures(facts: ReportFacts) -> dict[str, Any]:
    latency = facts.latency
    floor = latency.baseline_us / latency.floor_us if latency and latency.floor_us else None
    best_id = facts.best.candidate.program_id if facts.best else ""
    return {
        "by_evaluations": charts.convergence(facts.points, over="evaluations", floor_speedup=floor),
        "by_seconds": charts.convergence(facts.points, over="seconds", floor_speedup=floor),
        "heat_map": charts.heat_map(
            facts.cells, baseline_us=latency.baseline_us if latency else None, best_program=best_id
        ),
        "roofline": roofline(facts.ceilings),
        "legend": [charts.heat_colour(2 ** (k / 4)) for k in range(-4, 5)],
        "islands": sorted({p.island for p in facts.points}),
        "n_colours": charts.N_ISLAND_COLOURS,
    }


def _texts(facts: ReportFacts) -> dict[str, Any]:
    best = facts.best.candidate.source if facts.best else ""
    seed = facts.lineage[0].source if facts.lineage else ""
    return {
        "diff": diff_lines(seed, best),
        "source": source_html(best) if best else "",
        "settings": [(k, v) for k, v in flatten(facts.run.config).items() if v not in ("", None, [], {})],
        "sizes": facts.problem.full.sizes,
    }


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings under dotted names, as `--set` takes them."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
