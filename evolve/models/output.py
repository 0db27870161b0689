"""What improving a model leaves on disk: the delivered file, the winners, a summary and the report."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from db.errors import ArchiveError
from db.live import open_for_reading
from db.records import Run
from evaluators.decomposition.records import Decomposition
from evaluators.report import BaselineReport
from evolve.budget import AS_MANY_AS_FIT
from evolve.config import make_config
from evolve.models.dominant import dominant_operation
from evolve.models.places import SUMMARY
from evolve.models.records import Attempt, Conditions, ModelRun, PartResult
from evolve.reports.build import build_report
from evolve.reports.model import FILES, REPORT, write_page


def write_model(ended: ModelRun, archive: Path, folder: Path) -> ModelRun:
    """Writes `best.py` where there is something to deliver, `parts/NAME.py`, `summary.json`, the page of the model
    (`report.html`) and, where files were judged, the report on those (`files.html`); returns the run with their paths.

    Raises:
        ArchiveError: the folder cannot be written.
    """
    try:
        (folder / "parts").mkdir(parents=True, exist_ok=True)
        for part in ended.parts:
            if part.found.source:
                (folder / "parts" / f"{part.name}.py").write_text(part.found.source.rstrip() + "\n")
        paths = {"folder": str(folder), "report_path": str(folder / REPORT)}
        if ended.best_source:
            (folder / "best.py").write_text(ended.best_source.rstrip() + "\n")
            paths["best_path"] = str(folder / "best.py")
        told = _told_by_archive(ended, archive, folder)
        ended = ended.model_copy(update={**paths, "conditions": told})
        summary = summary_of(ended)
        (folder / SUMMARY).write_text(json.dumps(summary, indent=2) + "\n")
        write_page(summary, folder, folder)
    except ArchiveError:  # which is an OSError too
        raise
    except OSError as error:
        raise ArchiveError(f"cannot write results to {folder}: {error.strerror}", "nothing judged is lost") from None
    return ended


def summary_of(ended: ModelRun) -> dict[str, object]:
    """What `summary.json` holds, and what `evolve bench` reads."""
    decomposition = ended.decomposition
    return {
        "run": ended.run_id,
        "problem": ended.problem_name,
        "problem_id": ended.problem_id,
        "outcome": ended.result.outcome,
        "root_cause": ended.result.cause,
        "reason": ended.result.reason,
        "speedup": ended.result.speedup,
        "precision": ended.precision,
        "hardware": ended.hardware,
        "baseline": ended.baseline.name if ended.baseline else "",
        "baselines": _ways(ended.baseline) if ended.baseline else {},
        "dominant": _dominant(decomposition),
        "degenerate": decomposition.degenerate,
        "device_us": decomposition.device_us,
        "extern_share": round(decomposition.extern_share, 4),
        "notes": list(decomposition.notes),
        "left_out": list(decomposition.left_out),
        "steps": [share.model_dump() for share in decomposition.shares],
        "seconds": {**decomposition.seconds, "all": round(ended.elapsed_s, 2)},
        "versions": decomposition.versions,
        "conditions": ended.conditions.model_dump(mode="json") if ended.conditions else None,
        "parts": [_part_row(part) for part in ended.parts],
        "left_alone": [left.model_dump() for left in ended.left_alone],
        "whole": ended.whole.model_dump(exclude={"source"}) if ended.whole else None,
        "attempts": [_attempt_row(attempt) for attempt in ended.attempts],
        "is_interrupted": ended.is_interrupted,
        "best_path": ended.best_path,
        "report_path": ended.report_path,
    }


def _ways(baseline: BaselineReport) -> dict[str, object]:
    """Every way of running the module, in microseconds; one that failed has an error and no time."""
    return {time.name: time.model_dump(exclude={"name"}) for time in baseline.times}


def _dominant(decomposition: Decomposition) -> dict[str, object] | None:
    operation, share = dominant_operation(decomposition)
    return None if operation is None else {"operation": operation, "share": round(share, 4)}


def _part_row(part: PartResult) -> dict[str, object]:
    found = part.found.model_dump(exclude={"source"})
    return {
        "name": part.name,
        "first": part.first,
        "last": part.last,
        "kernels": list(part.kernels),
        "share": round(part.share, 6),
        "gain": round(part.gain, 6),
        "is_used": part.is_used,
        **found,
    }


def _attempt_row(attempt: Attempt) -> dict[str, object]:
    return attempt.model_dump(mode="json", exclude={"source"})


def _told_by_archive(ended: ModelRun, archive: Path, folder: Path) -> Conditions | None:
    """Writes the report on the files that were judged, and answers with what the archive knows of the run."""
    if not archive.exists():
        return None
    with contextlib.closing(open_for_reading(archive)) as reader:
        if all(run.run_id != ended.run_id for run in reader.runs()):
            return None
        if any(attempt.program_id for attempt in ended.attempts):
            (folder / FILES).write_text(build_report(reader, ended.run_id), encoding="utf-8")
        return conditions_of(reader.run(ended.run_id))


def conditions_of(run: Run) -> Conditions:
    """Those of a run, by its configuration."""
    config = make_config(run.config)
    return Conditions(
        started_at=run.started_at,
        evaluations=None if config.evaluations >= AS_MANY_AS_FIT else config.evaluations,
        time_s=config.time_s,
        islands=config.islands,
        models=config.models,
    )
