"""A technique counts only if, on three kernels that it was not written for, it changes the machine code and the result
stays what it was."""

from __future__ import annotations

import math
import random
from functools import cache
from typing import Any

import pytest
from support.compiling import compile_all, interpret_all
from support.parents import kernel_sources, parent_of

from islands.operators import Operator, Proposal, default_operators

TECHNIQUES = [operator for operator in default_operators() if operator.n_parents == 1]
SOURCES = kernel_sources()
KERNELS_WANTED = 3
KERNELS_TRIED = 4
# sizes that are multiples of 16 leave alignment nothing to say; on a loop nest or a constant the first draw may miss,
# and not every loop has something that the compiler would move
ODD_SIZES = ("alignment_hints",)
TRIES = {"loop_flatten": 2, "host_constant": 2, "max_registers": 2, "loop_invariants": 1}


class Trial:
    """One proposal for one kernel, with what the other process said of it."""

    def __init__(self, technique: str, kernel: str, proposal: Proposal) -> None:
        self.technique = technique
        self.kernel = kernel
        self.proposal = proposal
        self.aligned = technique not in ODD_SIZES
        self.launches: Any = None
        self.outputs: Any = None


@cache
def trials() -> list[Trial]:
    """Every technique on the first kernels to which it applies, compiled and interpreted in two processes a size."""
    found = [trial for technique in TECHNIQUES for trial in _trials_of(technique)]
    for aligned in (True, False):
        group = [t for t in found if t.aligned == aligned]
        sources = [t.proposal.source for t in group]
        for trial, launches, outputs in zip(
            group, compile_all(sources, aligned), interpret_all(sources, aligned), strict=True
        ):
            trial.launches, trial.outputs = launches, outputs
    return found


@cache
def originals(aligned: bool) -> dict[str, tuple[Any, Any]]:
    """Launches and outputs of the kernels as they are."""
    sources = list(SOURCES.values())
    answers = zip(compile_all(sources, aligned), interpret_all(sources, aligned), strict=True)
    return dict(zip(SOURCES, answers, strict=True))


def _trials_of(technique: Operator) -> list[Trial]:
    found: list[Trial] = []
    for kernel, source in SOURCES.items():
        proposals = [
            technique.propose([parent_of(source)], random.Random(s)) for s in range(TRIES.get(technique.name, 1))
        ]
        found += [Trial(technique.name, kernel, p) for p in dict.fromkeys(proposals) if p is not None]
        if len({t.kernel for t in found}) == KERNELS_TRIED and technique.name not in TRIES:
            break
    return found


def _agree(expected: Any, outputs: Any) -> bool:
    pairs = zip(expected, outputs, strict=True)
    return all(
        len(e) == len(o) and all(math.isclose(x, y, rel_tol=1e-4, abs_tol=1e-4) for x, y in zip(e, o, strict=True))
        for e, o in pairs
    )


@pytest.mark.slow
@pytest.mark.parametrize("aligned", [True, False])
def test_the_kernels_compile_and_run(aligned: bool) -> None:
    for name, (launches, outputs) in originals(aligned).items():
        assert isinstance(launches, list) and launches, f"{name}: {launches}"
        assert isinstance(outputs, list) and outputs, f"{name}: {outputs}"


@pytest.mark.slow
@pytest.mark.parametrize("technique", TECHNIQUES, ids=[t.name for t in TECHNIQUES])
def test_changes_machine_code_and_keeps_the_result(technique: Operator) -> None:
    good, seen = set(), []
    for trial in (t for t in trials() if t.technique == technique.name):
        launches, outputs = originals(trial.aligned)[trial.kernel]
        text_before = [launch[4] for launch in launches]
        changed = isinstance(trial.launches, list) and [launch[4] for launch in trial.launches] != text_before
        right = isinstance(trial.outputs, list) and _agree(outputs, trial.outputs)
        if changed and right:
            good.add(trial.kernel)
        seen.append((trial.kernel, trial.proposal.detail, changed, right or trial.outputs))
    assert len(good) >= KERNELS_WANTED, seen
