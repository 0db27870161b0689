"""Plain TF32 is only proposed where the search is for relaxed programs."""

from __future__ import annotations

import random

import pytest
from support.parents import kernel_sources, parent_of

from db.records import PrecisionClass
from islands.operators import default_operators


@pytest.mark.parametrize(
    ("precision", "modes"),
    [(PrecisionClass.REFERENCE, {"tf32x3", "ieee"}), (PrecisionClass.RELAXED, {"tf32", "tf32x3", "ieee"})],
)
def test_modes_of_a_search(precision: PrecisionClass, modes: set[str]) -> None:
    operator = next(o for o in default_operators(precision) if o.name == "precision")
    parent = parent_of(kernel_sources()["linear"])
    proposals = [operator.propose([parent], random.Random(seed)) for seed in range(30)]
    drawn = {p.source.split('input_precision="')[1].split('"')[0] for p in proposals if p is not None}
    assert drawn == modes
