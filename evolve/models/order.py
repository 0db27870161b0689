"""Which module first: the one that can gain most."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

from db.errors import EvolveError
from db.records import Problem
from evaluators.decomposition.foresight import foreseen_shares
from evaluators.hardware import load_hardware
from evaluators.problems import load_problem


def in_order_of_gain(modules: Sequence[Path], folder: Path, target: str) -> list[Path]:
    """Modules, those first of which the largest share of the time can be won back: what libraries do not take.

    The share is measured where an earlier sitting took the module apart and was interrupted, else foreseen from its
    operations alone. Modules of which neither is to be had come last; equals stay as they are.

    Args:
        folder: of the results.
        target: the GPU whose rates a foreseen share is for.
    """
    if len(modules) < 2:
        return list(modules)
    shares = {module: _measured(folder / module.stem) for module in modules}
    problems = {module: problem for module in modules if shares[module] is None and (problem := _problem_of(module))}
    shares |= dict(zip(problems, foreseen_shares(list(problems.values()), load_hardware(target)), strict=True))
    return sorted(modules, key=lambda module: -1.0 if (share := shares[module]) is None else share, reverse=True)


def _measured(place: Path) -> float | None:
    """What an interrupted sitting measured, if it came so far."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        summary = json.loads((place / "summary.json").read_text())
        return 1.0 - float(summary["extern_share"]) if summary["device_us"] else None
    return None


def _problem_of(module: Path) -> Problem | None:
    """None for a file that is no problem: whoever runs it will say why."""
    with contextlib.suppress(EvolveError):
        return load_problem(str(module))
    return None
