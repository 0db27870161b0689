"""Many modules, each improved once, and the table of them: the library twin of `evolve bench`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from db.errors import ConfigError, EvolveError
from db.records import Record
from evaluators.decomposition.classify import ModelOutcome, RootCause
from evolve.config import RunConfig
from evolve.models.output import summary_of
from evolve.models.records import ModelRun

FAST_P = (1.0, 1.1, 1.2, 1.5, 2.0)  # KernelBench (Ouyang et al., 2025): correct, and faster than p times the baseline


class BenchRow(Record):
    """What became of one module. Without an outcome, `error` says why there is none."""

    module: str
    outcome: ModelOutcome | None = None
    cause: RootCause | None = None
    speedup: float | None = None  # of what is delivered: the baseline itself is 1
    n_parts: int = 0
    n_used: int = 0
    seconds: float = 0.0
    reason: str = ""
    error: str = ""
    best_path: str = ""
    is_known: bool = False  # from an earlier sitting


class BenchTable(Record):
    """Every module, in order."""

    rows: tuple[BenchRow, ...]

    def count(self, outcome: ModelOutcome) -> int:
        """Modules with this outcome."""
        return sum(row.outcome is outcome for row in self.rows)

    @property
    def n_errors(self) -> int:
        return sum(bool(row.error) for row in self.rows)

    @property
    def geomean(self) -> float | None:
        """Over all modules that have an outcome; what keeps its baseline counts as 1."""
        return _geomean([row.speedup for row in self.rows if row.speedup])

    @property
    def geomean_optimized(self) -> float | None:
        return _geomean([row.speedup for row in self.rows if row.speedup and row.outcome is ModelOutcome.OPTIMIZED])

    @property
    def fast_p(self) -> dict[float, float]:
        """For each p, the share of all modules that are correct and faster than p times the baseline."""
        n = len(self.rows) or 1
        return {p: sum(row.speedup is not None and row.speedup > p for row in self.rows) / n for p in FAST_P}

    @property
    def causes(self) -> dict[str, int]:
        """How many fell back for each cause, the most frequent first."""
        found: dict[str, int] = {}
        for row in self.rows:
            if row.cause is not None:
                found[str(row.cause)] = found.get(str(row.cause), 0) + 1
        return dict(sorted(found.items(), key=lambda item: -item[1]))


Improve = Callable[[RunConfig], ModelRun]


def bench(
    modules: Sequence[Path],
    config: RunConfig,
    improve: Improve,
    *,
    folder: Path,
    on_row: Callable[[BenchRow], None] = lambda _: None,
) -> BenchTable:
    """Improves every module once; one whose results lie in `folder` already is taken from there.

    Ends after a module that was interrupted, which is tried again the next time.

    Args:
        config: of each module's run; problem, folder and `parts` are set here.
        improve: `run_model`.
        on_row: called with each row as it is there.
    """
    rows: list[BenchRow] = []
    for module in modules:
        place = folder / module.stem
        row, is_interrupted = known_row(module, place), False
        if row is None:
            own = config.model_copy(update={"problem": str(module), "out": str(place), "parts": "always"})
            row, is_interrupted = _improved(module, own, improve)
        rows.append(row)
        on_row(row)
        if is_interrupted:
            break
    return BenchTable(rows=tuple(rows))


def modules_of(places: Sequence[Path]) -> list[Path]:
    """The Python files that are named, and those of the folders that are named, in order.

    Raises:
        ConfigError: a place that is none, a folder without one, or two files of one name.
    """
    found: list[Path] = []
    for place in places:
        inside = sorted(place.glob("*.py")) if place.is_dir() else [place]
        if not inside or not all(file.is_file() for file in inside):
            raise ConfigError(f"{place} holds no module", "give Python files, or folders of them")
        found += inside
    twice = {file.stem for file in found if sum(other.stem == file.stem for other in found) > 1}
    if twice:
        raise ConfigError(f"two modules are called {min(twice)}", "results are kept by name: rename one")
    return found


def known_row(module: Path, place: Path) -> BenchRow | None:
    """The row of a module from what an earlier sitting left, if it ended in order."""
    try:
        summary = json.loads((place / "summary.json").read_text())
        row = row_of(module.stem, summary)
    except (OSError, ValueError, KeyError, TypeError, ValidationError):
        return None
    return None if summary["is_interrupted"] else row.model_copy(update={"is_known": True})


def row_of(module: str, summary: dict[str, Any]) -> BenchRow:
    """The row of a summary as `summary.json` holds it."""
    is_optimized = summary["outcome"] == ModelOutcome.OPTIMIZED
    return BenchRow(
        module=module,
        outcome=summary["outcome"],
        cause=summary["root_cause"],
        speedup=summary["speedup"] if is_optimized else 1.0,
        n_parts=len(summary["parts"]),
        n_used=sum(part["is_used"] for part in summary["parts"]),
        seconds=summary["seconds"]["all"],
        reason=summary["reason"],
        best_path=summary["best_path"],
    )


def _improved(module: Path, config: RunConfig, improve: Improve) -> tuple[BenchRow, bool]:
    try:
        ended = improve(config)
    except EvolveError as error:  # of this module; the others stand
        return BenchRow(module=module.stem, error=" ".join(error.message.split())), False
    return row_of(module.stem, json.loads(json.dumps(summary_of(ended)))), ended.is_interrupted


def _geomean(values: Sequence[float]) -> float | None:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None
