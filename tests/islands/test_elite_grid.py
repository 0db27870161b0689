"""The grid keeps the fastest of every cell, and nothing that cannot be compared."""

from __future__ import annotations

import math

import pytest
from support.colony import candidate, occupant
from support.landscape import correct, failed

from db.measures import Tier
from db.records import LatencyKind, PrecisionClass, Verdict
from islands.grid import QD_OFFSET_OCTAVES, AddStatus, EliteGrid, GridKey, Occupant


@pytest.fixture
def grid() -> EliteGrid:
    return EliteGrid(GridKey.of(occupant(100.0).verdict))


def test_statuses_are_ordered() -> None:
    assert AddStatus.REJECTED < AddStatus.IMPROVED < AddStatus.NEW


def test_a_cell_goes_to_the_faster_program(grid: EliteGrid) -> None:
    assert grid.add(occupant(100.0)) is AddStatus.NEW
    assert grid.add(occupant(101.0)) is AddStatus.REJECTED  # one bin is 9% wide
    assert grid.add(occupant(99.0)) is AddStatus.IMPROVED
    assert grid.add(occupant(200.0)) is AddStatus.NEW
    assert [elite.latency_us for elite in grid.elites()] == [99.0, 200.0]
    assert grid.best is not None and grid.best.latency_us == 99.0
    assert len(grid) == 2


def test_tiers_have_cells_of_their_own(grid: EliteGrid) -> None:
    grid.add(occupant(100.0))
    assert grid.add(occupant(100.5, tier=Tier.COMPUTE_BOUND)) is AddStatus.NEW


def test_a_tie_goes_to_the_shorter_source(grid: EliteGrid) -> None:
    grid.add(occupant(100.0, source="X = 11\n"))
    assert grid.add(occupant(100.0, source="X = 22\n")) is AddStatus.REJECTED
    assert grid.add(occupant(100.0, source="X = 3\n")) is AddStatus.IMPROVED


def test_a_program_holds_one_cell_however_often_it_is_measured(grid: EliteGrid) -> None:
    grid.add(occupant(100.0, source="X = 1\n"))
    assert grid.add(occupant(300.0, source="X = 1\n")) is AddStatus.REJECTED
    assert len(grid) == 1


def test_a_displaced_program_may_come_back_elsewhere(grid: EliteGrid) -> None:
    grid.add(occupant(100.0, source="X = 1\n"))
    grid.add(occupant(99.0, source="X = 2\n"))
    assert grid.add(occupant(300.0, source="X = 1\n")) is AddStatus.NEW


@pytest.mark.parametrize("latency_us", [math.nan, math.inf, -math.inf, 0.0, -1.0])
@pytest.mark.parametrize("field", ["device_us", "baseline_us"])
def test_latencies_that_are_no_time_are_refused(grid: EliteGrid, field: str, latency_us: float) -> None:
    good = occupant(100.0)
    assert good.verdict.latency is not None
    # model_copy does not validate: this is what a broken judge could still hand over
    broken = good.verdict.latency.model_copy(update={field: latency_us})
    with pytest.raises(ValueError, match="finite and positive"):
        grid.add(good._replace(verdict=good.verdict.model_copy(update={"latency": broken})))
    assert len(grid) == 0


def verdicts_of_other_keys() -> dict[str, Verdict]:
    made = candidate()
    return {
        "modelled": correct(made, 90.0, kind=LatencyKind.MODELLED),
        "relaxed": correct(made, 90.0, precision=PrecisionClass.RELAXED),
        "other hardware": correct(made, 90.0, hardware_id="nvidia-a100"),
        "other problem": correct(made, 90.0).model_copy(update={"problem_id": "another"}),
    }


@pytest.mark.parametrize("other", verdicts_of_other_keys())
def test_what_cannot_be_compared_is_refused(grid: EliteGrid, other: str) -> None:
    verdict = verdicts_of_other_keys()[other]
    assert not grid.accepts(verdict)
    with pytest.raises(ValueError, match="cannot hold"):
        grid.add(Occupant(candidate(), verdict))


def test_failed_programs_are_refused(grid: EliteGrid) -> None:
    verdict = failed(candidate())
    assert not grid.accepts(verdict)
    with pytest.raises(ValueError, match="no latency"):
        grid.add(Occupant(candidate(), verdict))


def test_coverage_counts_cells(grid: EliteGrid) -> None:
    assert grid.coverage == 0.0
    grid.add(occupant(100.0))
    grid.add(occupant(400.0))
    assert grid.coverage == 2 / grid.space.n_cells


def test_qd_score_counts_octaves_over_the_baseline(grid: EliteGrid) -> None:
    grid.add(occupant(100.0))  # four times as fast as the baseline of 400
    assert grid.qd_score == pytest.approx(2 + QD_OFFSET_OCTAVES)


def test_qd_score_never_falls(grid: EliteGrid) -> None:
    scores = [0.0]
    for latency_us in (400.0, 1e6, 380.0, 1.0, 5e4):
        grid.add(occupant(latency_us))
        scores.append(grid.qd_score)
    assert scores == sorted(scores)


def test_best_of_an_empty_grid_is_none(grid: EliteGrid) -> None:
    assert grid.best is None
    assert grid.elites() == []


def test_counters_move_a_program_to_the_cell_of_its_tier(grid: EliteGrid) -> None:
    moved = occupant(100.0, source="X = 1\n")
    grid.add(moved)
    later = moved.verdict.model_copy(update={"tier": Tier.COMPUTE_BOUND})
    assert grid.revise(later)
    assert [cell.tier for cell in grid.cells()] == [Tier.COMPUTE_BOUND]
    assert grid.best is not None and grid.best.verdict == later
    assert grid.add(occupant(100.5, source="X = 2\n")) is AddStatus.NEW  # the cell that it left is free


def test_counters_may_have_been_read_for_another_candidate_of_the_same_program(grid: EliteGrid) -> None:
    moved = occupant(100.0)
    grid.add(moved)
    assert grid.revise(moved.verdict.model_copy(update={"candidate_id": "of another island"}))
    assert [elite.as_evaluation().verdict for elite in grid.elites()] == [moved.verdict]


def test_a_program_that_moves_yields_to_the_faster(grid: EliteGrid) -> None:
    grid.add(occupant(99.0, source="X = 1\n", tier=Tier.COMPUTE_BOUND))
    slower = occupant(99.5, source="X = 2\n")
    grid.add(slower)
    assert not grid.revise(slower.verdict.model_copy(update={"tier": Tier.COMPUTE_BOUND}))
    assert len(grid) == 1 and slower.program_id not in grid


def test_counters_of_a_program_that_holds_no_cell_change_nothing(grid: EliteGrid) -> None:
    grid.add(occupant(100.0, source="X = 1\n"))
    assert not grid.revise(occupant(100.0, source="X = 9\n").verdict)
    assert len(grid) == 1
