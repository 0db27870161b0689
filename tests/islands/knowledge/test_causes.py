"""Causes: the same two profiles always give the same words for why a gain is not what was predicted."""

from __future__ import annotations

import pytest
from support.colony import candidate
from support.landscape import correct, failed

from db.profile import Bottleneck, BottleneckReport, PerformanceState, Profile
from islands.knowledge import Standing, cause_of

BEFORE = Standing(limit="memory_latency", spill_bytes=0, occupancy=0.5, dram_bytes=1e9)


@pytest.mark.parametrize(
    ("after", "predicted", "octaves", "words"),
    [
        ({"gate": "correctness"}, 0.1, None, "failed: gate correctness"),
        ({}, 0.1, None, "cannot be compared with its parent"),
        ({"is_repeat": True}, 0.1, 0.0, "the same machine code as a program judged before"),
        ({}, 0.3, 0.28, "as predicted"),
        ({}, 0.0, -0.01, "as predicted"),
        ({}, 0.3, 0.01, "the machine code did not change what limits it"),
        ({"spill_bytes": 64}, 0.3, -0.4, "spills appeared"),
        ({"occupancy": 0.25}, 0.3, -0.4, "occupancy fell from 50% to 25%"),
        ({"dram_bytes": 1.2e9}, 0.3, -0.4, "20% more traffic"),
        (
            {"limit": "spills", "spill_bytes": 8},
            0.3,
            -0.4,
            "spills appeared; the bottleneck moved from memory_latency to spills",
        ),
        ({}, 0.3, -0.4, "slower, and the profile does not say why"),
        ({}, 0.5, 0.2, "a smaller gain, and the profile does not say why"),
        ({"dram_bytes": 5e8}, 0.05, 0.9, "50% less traffic"),
        ({"occupancy": 1.0}, 0.05, 0.9, "occupancy rose from 50% to 100%"),
        ({"limit": "dram_bandwidth"}, 0.05, 0.9, "the bottleneck moved from memory_latency to dram_bandwidth"),
        ({}, 0.05, 0.9, "a larger gain, and the profile does not say why"),
        ({}, None, 0.9, "a larger gain, and the profile does not say why"),
    ],
)
def test_causes(after: dict[str, object], predicted: float | None, octaves: float | None, words: str) -> None:
    judged = BEFORE._replace(**after)  # type: ignore[arg-type]
    assert cause_of(BEFORE, judged, predicted, octaves) == words


def test_a_bottleneck_moves_only_where_the_same_eyes_saw_both() -> None:
    after = BEFORE._replace(limit="dram_bandwidth", source="ncu")
    assert cause_of(BEFORE, after, 0.05, 0.9) == "a larger gain, and the profile does not say why"
    assert "moved" in cause_of(BEFORE._replace(source="ncu"), after, 0.05, 0.9)


def test_more_and_fewer_spills_are_told_apart() -> None:
    spilling = BEFORE._replace(spill_bytes=32)
    assert cause_of(spilling, spilling._replace(spill_bytes=64), 0.0, -0.5) == "more spills"
    assert cause_of(spilling, spilling._replace(spill_bytes=0), 0.0, 0.5) == "spills disappeared"
    assert cause_of(spilling, spilling._replace(spill_bytes=8), 0.0, 0.5) == "fewer spills"


def test_nothing_is_made_up_where_nothing_was_read() -> None:
    blank = Standing()
    assert cause_of(blank, blank, 0.0, 1.0) == "a larger gain, and the profile does not say why"


def test_a_standing_is_read_off_a_verdict() -> None:
    state = PerformanceState(primary=Bottleneck.SPILLS, architecture="sm_90")
    verdict = correct(candidate(), 50.0)
    report = BottleneckReport(tier=verdict.tier, source="ncu", state=state, limit="registers")
    profile = Profile(source="ncu", spill_bytes=8, occupancy=0.25, dram_read_bytes=3.0, dram_write_bytes=4.0)
    standing = Standing.of(verdict.model_copy(update={"bottleneck": report, "profile": profile}), "exp2")
    assert (standing.technique, standing.state, standing.limit) == ("exp2", state.key, "spills")
    assert (standing.spill_bytes, standing.occupancy, standing.dram_bytes, standing.latency_us) == (8, 0.25, 7, 50)
    assert standing.situation.previous == "exp2"
    assert Standing.of(failed(candidate())).gate == "static"
