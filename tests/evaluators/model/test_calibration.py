"""The model ranks programs of the suite as an H200 did: all variants that are stored with what was measured."""

import numpy as np
import pytest

from benchmarks.calibration import (
    STORED,
    Variant,
    agreement,
    by_problem,
    fit,
    loss,
    rank_correlation,
    read_variants,
    table,
    write_variants,
)
from evaluators.model.constants import FITTED, ModelConstants

VARIANTS = read_variants(STORED)
PROBLEMS = by_problem(VARIANTS)


def test_there_are_enough_variants() -> None:
    assert len(PROBLEMS) >= 10
    assert len(VARIANTS) >= 300
    assert min(len(variants) for variants in PROBLEMS.values()) >= 30


@pytest.mark.parametrize("name", PROBLEMS)
def test_ranks_within_a_problem(name: str) -> None:
    found = agreement(PROBLEMS[name], FITTED)
    assert found.rank_correlation > 0.5
    assert found.median_absolute_error < 0.15


def test_ranks_over_problems() -> None:
    correlations = [agreement(variants, FITTED).rank_correlation for variants in PROBLEMS.values()]
    assert np.median(correlations) > 0.8


@pytest.mark.parametrize(
    "change",
    [{"spread": 0.0}, {"most_overlap": 1.0}, {"memory_latency_us": 0.05}, {"scatter": 0.0}, {"spill_share": 1e6}],
    ids=lambda change: next(iter(change)),
)
def test_every_term_is_needed(change: dict[str, float]) -> None:
    assert loss(PROBLEMS, FITTED._replace(**change)) > loss(PROBLEMS, FITTED) + 0.01


def test_a_fit_finds_its_way_back() -> None:
    """From a memory that answers at once, on two problems that are sensitive to it."""
    some = {name: PROBLEMS[name] for name in ("int8_quant", "avg_pool")}
    wrong = FITTED._replace(memory_latency_us=0.05)
    found = fit(some, wrong, seconds=2.0, rng_seed=0)
    assert loss(some, found) < loss(some, wrong) - 0.01
    assert found.read_gain == FITTED.read_gain


def test_rank_correlation() -> None:
    a = np.array([1.0, 2.0, 3.0, 4.0])
    assert rank_correlation(a, a**3) == pytest.approx(1.0)
    assert rank_correlation(a, -a) == pytest.approx(-1.0)
    assert rank_correlation(a, np.array([1.0, 2.0, 2.0, 3.0])) == pytest.approx(0.9487, abs=1e-4)  # ties share a rank


def test_variants_are_kept_in_a_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    def modelled(variants: list[Variant]) -> float:
        return agreement(variants, ModelConstants()).median_error

    some = VARIANTS[:40]
    write_variants(tmp_path / "some.jsonl.gz", some)
    again = read_variants(tmp_path / "some.jsonl.gz")
    assert [v.program_id for v in again] == [v.program_id for v in some]
    assert modelled(again) == pytest.approx(modelled(some), abs=1e-3)
    write_variants(tmp_path / "again.jsonl.gz", again)
    assert (tmp_path / "again.jsonl.gz").read_bytes() == (tmp_path / "some.jsonl.gz").read_bytes()


def test_a_table_says_what_was_held_out() -> None:
    text = table({name: PROBLEMS[name] for name in list(PROBLEMS)[:3]}, FITTED, held_out=list(PROBLEMS)[:1])
    assert text.count("held out") == 2
    assert "held out: median" in text
