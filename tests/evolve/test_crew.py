"""Evaluators of one run have to judge alike."""

import pytest
from support.workers import make_report

from db.errors import ClusterError
from evolve.crew import agreed


def test_operations_of_every_baseline_are_allowed() -> None:
    one, other = make_report(), make_report()
    calling = [
        report.model_copy(update={"baseline": report.baseline.model_copy(update={"extern_ops": (name,)})})
        for report, name in ((one, "aten.mm"), (other, "aten.addmm"))
    ]
    assert agreed(calling).baseline.extern_ops == ("aten.addmm", "aten.mm")


@pytest.mark.parametrize("part", ["hardware", "versions"])
def test_evaluators_that_differ_are_refused(part: str) -> None:
    one = make_report()
    changed = {
        "hardware": {"hardware": one.hardware.model_copy(update={"name": "Another GPU"})},
        "versions": {"versions": {"judge": "other"}},
    }[part]
    with pytest.raises(ClusterError, match="evaluators differ"):
        agreed([one, one.model_copy(update=changed)])
    assert agreed([one, one]).hardware == one.hardware
