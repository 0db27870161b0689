"""Many modules, each improved once, and the table of them: the library twin of `evolve bench`."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import ValidationError

from db.errors import ConfigError
from evolve.config import RunConfig
from evolve.models.output import summary_of
from evolve.models.places import place_of, summary_in
from evolve.models.records import ModelRun
from evolve.models.rows import BenchRow, level_of, row_of
from evolve.models.searching import reason_of
from evolve.models.table import BenchTable

FAILURE = "failure.txt"
MOST_LETTERS = 300

Improve = Callable[[RunConfig], ModelRun]


def bench(
    modules: Sequence[Path],
    config: RunConfig,
    improve: Improve,
    *,
    folder: Path,
    on_row: Callable[[BenchRow], None] = lambda _: None,
) -> BenchTable:
    """Improves every module once; one whose results lie in `folder` already is taken from there (see `place_of`).

    A module that cannot be run is a row with its error. Ends after one that was interrupted, which is tried again the
    next time.

    Args:
        config: of each module's run; problem, folder and `parts` are set here.
        improve: `run_model`.
        on_row: called with each row as it is there.
    """
    rows: list[BenchRow] = []
    for module in modules:
        place = place_of(module, folder, config.shapes)
        row = known_row(module, place)
        if row is None:
            own = knowing(config).model_copy(update={"problem": str(module), "out": str(place), "parts": "always"})
            row = _improved(module, own, improve)
        rows.append(row)
        on_row(row)
        if row.is_interrupted:
            break
    return BenchTable(rows=tuple(rows))


def knowing(config: RunConfig) -> RunConfig:
    """The configuration of a run that starts from what its archive knows of the same parts: an earlier sitting's."""
    known = [config.archive] if Path(config.archive).exists() else []
    seed_from = dict.fromkeys(str(Path(path).resolve()) for path in (*config.seed_from, *known))
    return config.model_copy(update={"seed_from": tuple(seed_from)})


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
        raise ConfigError(
            f"two modules are called {min(twice)}", "the table tells modules apart by their names: rename one"
        )
    return found


def known_row(module: Path, place: Path) -> BenchRow | None:
    """The row of a module from what an earlier sitting left in its place, if it ended in order."""
    summary = summary_in(place)
    if summary is None:
        return None
    try:
        row = row_of(module, summary).model_copy(update={"is_known": True, "folder": place.name})
        return None if summary["is_interrupted"] else row
    except (ValueError, KeyError, TypeError, ValidationError):
        return None


def failed_row(module: Path, config: RunConfig, error: str) -> BenchRow:
    """The row of a module that has no outcome."""
    return BenchRow(module=module.stem, level=level_of(module), precision=config.precision, error=error)


def _improved(module: Path, config: RunConfig, improve: Improve) -> BenchRow:
    try:
        ended = improve(config)
    except Exception as error:  # the boundary of a module, whatever its file does to us: the others stand
        return failed_row(module, config, _told(error, Path(config.out)))
    row = row_of(module, json.loads(json.dumps(summary_of(ended))))
    return row.model_copy(update={"folder": Path(config.out).name})


def _told(error: Exception, place: Path) -> str:
    """What went wrong, in a line. A fault that is nobody's to mend leaves its traceback in the module's folder."""
    if reason := reason_of(error):
        return reason
    place.mkdir(parents=True, exist_ok=True)
    (place / FAILURE).write_text("".join(traceback.format_exception(error)))
    first = " ".join(str(error).split())[:MOST_LETTERS]
    return f"{type(error).__name__}: {first}, see {place / FAILURE}"
