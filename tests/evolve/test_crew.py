"""Evaluators of one run have to judge alike."""

import asyncio
from pathlib import Path

import pytest
from support.runs import make_problem
from support.workers import make_report

from db.errors import ClusterError
from db.records import DeviceKind
from evolve.config import load_config
from evolve.crew import MAX_PER_CORE, Crew, agreed, cores_each


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


@pytest.mark.parametrize("n_cores", [1, 2, 3, 16])
def test_all_judging_processes_that_are_asked_for_find_a_place(n_cores: int) -> None:
    for n_processes in range(1, MAX_PER_CORE * n_cores + 1):
        share = cores_each(n_processes, n_cores)
        n_per_core = int(10_000 // round(10_000 * share))
        assert n_per_core * n_cores >= n_processes
    assert cores_each(n_cores, n_cores) == 1


def test_more_evaluators_than_cores_can_carry_are_refused_instead_of_waited_for(
    ray_session: None, tmp_path: Path
) -> None:
    options = {"archive": str(tmp_path / "a.duckdb"), "cluster": {"n_evaluators": 99}}
    crew = Crew(load_config("softmax", options=options), make_problem(), DeviceKind.CPU, "run")

    async def opened() -> None:
        async with crew:
            await crew.open()

    with pytest.raises(ClusterError, match="99 evaluators and preparers are more than 8 for each of 2 cores"):
        asyncio.run(opened())
