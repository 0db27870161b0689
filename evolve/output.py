"""What a run leaves on disk beside the archive: the best program, a summary and the report."""

from __future__ import annotations

import json
from pathlib import Path

from db.errors import ArchiveError, EvolveError
from db.live import open_for_reading
from db.records import Evaluation
from evolve.events import RunResult


def write_results(result: RunResult, archive: Path, folder: Path) -> RunResult:
    """Write `best.py`, `summary.json` and `report.html`; returns the result with their paths.

    Raises:
        ArchiveError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        best_path = _write_best(result.best, result.replaces_baseline, folder) if result.best else ""
        result = result.model_copy(update={"best_path": best_path, **_reported(archive, result.run.run_id, folder)})
        (folder / "summary.json").write_text(json.dumps(_summary(result), indent=2) + "\n")
    except ArchiveError:  # which is an OSError too
        raise
    except OSError as error:
        raise ArchiveError(
            f"cannot write results to {folder}: {error.strerror}",
            f"nothing judged is lost: evolve report {result.run.run_id} --out ANOTHER-FOLDER",
        ) from None
    return result


def describe_best(evaluation: Evaluation) -> str:
    """One line about a program: latency, speed-up, where it was had."""
    latency = evaluation.verdict.latency
    if latency is None:
        return evaluation.verdict.reason
    return (
        f"{latency.device_us:.2f} us {latency.kind} on {evaluation.verdict.hardware_id}, "
        f"{latency.speedup:.2f}x over {latency.baseline_name} ({latency.baseline_us:.2f} us)"
    )


def _write_best(best: Evaluation, replaces_baseline: bool, folder: Path) -> str:
    path = folder / "best.py"
    header = f"# program {best.candidate.program_id}: {describe_best(best)}\n"
    if not replaces_baseline:
        header = f"# DOES NOT BEAT THE BASELINE: keep that; this is the closest that was found\n{header}"
    path.write_text(header + best.candidate.source.rstrip() + "\n")
    return str(path)


def _reported(archive: Path, run_id: str, folder: Path) -> dict[str, str]:
    """Where the report is; or why there is none, which must not cost the rest."""
    try:
        return {"report_path": str(_write_report(archive, run_id, folder)), "report_error": ""}
    except EvolveError as error:
        return {"report_path": "", "report_error": error.message}


def _write_report(archive: Path, run_id: str, folder: Path) -> Path:
    reader = open_for_reading(archive)
    try:
        from evolve.reports.build import write_report  # with jinja2: a run is to begin before its report is written

        return write_report(reader, run_id, folder)
    finally:
        reader.close()


def _summary(result: RunResult) -> dict[str, object]:
    latency = result.best.verdict.latency if result.best else None
    return {
        "run": result.run.run_id,
        "problem": result.problem.name,
        "hardware": result.run.hardware.name,
        "latency_kind": result.run.latency_kind,
        "isolation": result.run.versions.get("isolation", ""),
        "stop_reason": result.run.stop_reason,
        "judged": result.progress.n_judged,
        "elapsed_s": round(result.progress.elapsed_s, 2),
        "evaluators_busy": [round(share, 3) for share in result.evaluators_busy],
        "counters": result.counters.model_dump() if result.counters else None,
        "best_program": result.best.candidate.program_id if result.best else None,
        "latency": latency.model_dump(mode="json") if latency else None,
        "speedup": round(latency.speedup, 4) if latency else None,
        "replaces_baseline": result.replaces_baseline,
        "digest": result.digest,
        "best_path": result.best_path,
        "report_path": result.report_path,
    }
