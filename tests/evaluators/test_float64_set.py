"""The labelled set of the float64 rule: every program says what it is, and what counts as coming out so."""

from __future__ import annotations

import pytest

from benchmarks.float64_rule import LABELS, PROGRAMS, labelled, meets

REFERENCES = sorted(path.parent.name for path in PROGRAMS.glob("*/reference.py"))


def test_every_reference_has_programs_that_pass_and_one_that_is_wrong() -> None:
    programs = {reference: labelled(reference) for reference in REFERENCES}
    assert len(programs) >= 4 and sum(map(len, programs.values())) >= 16
    for reference, found in programs.items():
        labels = {program.label for program in found}
        assert "wrong" in labels and labels & {"reference", "exact"}, reference
    assert {program.label for found in programs.values() for program in found} == set(LABELS)
    assert {p.name for p in programs["product"] if p.needs_gpu} == {"tf32", "tf32x3"}


@pytest.mark.parametrize(
    ("label", "found", "ratio", "gate", "is_met"),
    [
        ("reference", "reference", 9.9, "", True),
        ("reference", "reference", 10.1, "", False),
        ("reference", "reference", None, "", False),  # it took the other branch
        ("reference", "relaxed", 200.0, "", False),
        ("exact", "reference", None, "", True),
        ("exact", "reference", 1.0, "", False),
        ("relaxed", "relaxed", 200.0, "", True),
        ("relaxed", "refused", None, "model", True),
        ("relaxed", "reference", 1.0, "", False),
        ("wrong", "refused", None, "correctness", True),
        ("wrong", "refused", None, "static", False),  # of that nobody learns whether it is wrong
        ("wrong", "relaxed", 1e4, "", False),
        ("wrong", "unsupported", None, "", False),
    ],
)
def test_what_counts_as_labelled(label: str, found: str, ratio: float | None, gate: str, is_met: bool) -> None:
    assert meets(label, found, ratio, gate) is is_met
