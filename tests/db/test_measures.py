"""Cells: what a tier and an edge are, and that both stay where they are."""

from __future__ import annotations

import math

import pytest

from db.measures import HIGHEST_BIN, LOWEST_BIN, TIERS, Cell, MeasureSpace, Tier, classify

SPACE = MeasureSpace()


@pytest.mark.parametrize(
    ("compute", "memory", "tier"),
    [
        (80.1, 10, Tier.NEAR_OPTIMAL),
        (10, 80.1, Tier.NEAR_OPTIMAL),
        (80, 80, Tier.MEMORY_BOUND),
        (60, 10, Tier.COMPUTE_BOUND),
        (10, 60, Tier.MEMORY_BOUND),
        (59.9, 59.9, Tier.UNDERUTILIZED),
        (0, 0, Tier.UNDERUTILIZED),
        (70, 70, Tier.MEMORY_BOUND),
        (104, 3, Tier.NEAR_OPTIMAL),
    ],
)
def test_tier_of_speeds_of_light(compute: float, memory: float, tier: Tier) -> None:
    assert classify(compute, memory) is tier


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.1])
def test_no_tier_without_percentages(value: float) -> None:
    with pytest.raises(ValueError, match="compute_sol_pct"):
        classify(value, 50)
    with pytest.raises(ValueError, match="memory_sol_pct"):
        classify(50, value)


@pytest.mark.parametrize("latency_bin", range(LOWEST_BIN, HIGHEST_BIN + 1))
def test_an_edge_belongs_to_the_bin_that_it_opens(latency_bin: int) -> None:
    edge = 2 ** (latency_bin / 8)
    assert SPACE.latency_bin_of(edge) == latency_bin
    assert SPACE.latency_bin_of(math.nextafter(edge, math.inf)) == latency_bin
    assert SPACE.latency_bin_of(math.nextafter(edge, 0)) == max(latency_bin - 1, LOWEST_BIN)


def test_edges_enclose_their_bin() -> None:
    for latency_bin in range(LOWEST_BIN + 1, HIGHEST_BIN):
        lower, upper = SPACE.edges_us(latency_bin)
        assert lower < upper == SPACE.edges_us(latency_bin + 1)[0]
        assert SPACE.latency_bin_of((lower + upper) / 2) == latency_bin


def test_the_ends_are_open() -> None:
    assert SPACE.latency_bin_of(1e-300) == LOWEST_BIN and SPACE.edges_us(LOWEST_BIN)[0] == 0
    assert SPACE.latency_bin_of(1e300) == HIGHEST_BIN and SPACE.edges_us(HIGHEST_BIN)[1] == math.inf


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0, -3.0])
def test_no_cell_without_a_latency(value: float) -> None:
    with pytest.raises(ValueError, match="finite and positive"):
        SPACE.cell_of(Tier.MEMORY_BOUND, value)


def test_a_doubling_is_eight_bins() -> None:
    assert SPACE.cell_of(Tier.MEMORY_BOUND, 100.0) == Cell(Tier.MEMORY_BOUND, 53)
    assert SPACE.cell_of(Tier.MEMORY_BOUND, 200.0) == Cell(Tier.MEMORY_BOUND, 61)


def test_number_of_cells() -> None:
    assert SPACE.n_cells == 4 * (HIGHEST_BIN - LOWEST_BIN + 1) and len(TIERS) == 4
