"""Where the results of a module lie: in a folder of its name, or of name and id where another problem has that one."""

from __future__ import annotations

import contextlib
import glob
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from db.errors import EvolveError
from db.hashing import content_hash
from evaluators.problems import load_problem

SUMMARY = "summary.json"
ID_DIGITS = 16  # as `content_hash` has them


def place_of(module: Path, folder: Path, shapes: Mapping[str, int | float]) -> Path:
    """The folder of a module's results: one that holds none yet, or those of the same problem.

    What a module asks counts, as in the archive, and not where its file lies: comments and formatting make no other.

    Args:
        folder: of all results.
        shapes: sizes that are set in the place of the module's own.
    """
    named, problem_id = folder / module.stem, _id_of(module, shapes)
    summary = summary_in(named)
    is_free = summary is None or summary.get("problem_id") == problem_id
    return named if is_free else folder / f"{module.stem}-{problem_id}"


def places_named(name: str, folder: Path) -> list[Path]:
    """Every folder of results that a module of this name may have had, whatever it asked then."""
    return [folder / name, *sorted(folder.glob(f"{glob.escape(name)}-{'[0-9a-f]' * ID_DIGITS}"))]


def summary_in(place: Path) -> dict[str, Any] | None:
    """What a run left in a folder; None where it left nothing that can be read."""
    with contextlib.suppress(OSError, ValueError):
        summary = json.loads((place / SUMMARY).read_text())
        return summary if isinstance(summary, dict) else None
    return None


def _id_of(module: Path, shapes: Mapping[str, int | float]) -> str:
    """That of its problem; a file that is none has no results, and takes the place of nobody's."""
    try:
        return load_problem(str(module), sizes=shapes).problem_id
    except EvolveError:
        return content_hash(str(module.absolute()))
