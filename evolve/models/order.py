"""Which module first: the one that can gain most."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

from db.errors import EvolveError
from db.records import Problem
from evaluators.decomposition.foresight import foreseen_shares
from evaluators.hardware import load_hardware
from evaluators.problems import load_problem
from evolve.config import RunConfig
from evolve.language import without_keys
from evolve.models.places import summary_in


def in_order_of_gain(
    places: Mapping[Path, Path], config: RunConfig, on_look: Callable[[Path], None] = lambda _: None
) -> list[Path]:
    """Modules, those first of which the largest share of the time can be won back: what libraries do not take.

    The share is measured where an earlier sitting took the module apart and was interrupted, else foreseen from its
    operations alone. Modules of which neither is to be had come last; equals stay as they are.

    Args:
        places: modules, each with the folder of its results.
        config: of each module's run; a foreseen share is for the rates of its target.
        on_look: called with each module whose share is to be foreseen, as it is looked at: some take minutes.
    """
    if len(places) < 2:
        return list(places)
    shares = {module: _measured(place) for module, place in places.items()}
    unmeasured = [module for module, share in shares.items() if share is None]
    problems = {module: problem for module in unmeasured if (problem := _problem_of(module, config))}
    asked, hardware = list(problems), load_hardware(config.target)
    with without_keys(config):
        foreseen = foreseen_shares(list(problems.values()), hardware, on_look=lambda index: on_look(asked[index]))
    shares |= dict(zip(asked, foreseen, strict=True))
    return sorted(places, key=lambda module: -1.0 if (share := shares[module]) is None else share, reverse=True)


def _measured(place: Path) -> float | None:
    """What an interrupted sitting measured, if it came so far."""
    summary = summary_in(place)
    if summary is None:
        return None
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return 1.0 - float(summary["extern_share"]) if summary["device_us"] else None
    return None


def _problem_of(module: Path, config: RunConfig) -> Problem | None:
    """None for a file that is no problem: whoever runs it will say why."""
    with contextlib.suppress(EvolveError):
        return load_problem(str(module), sizes=config.shapes)
    return None
