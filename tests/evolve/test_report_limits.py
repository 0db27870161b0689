"""What the report says of limits: for the best program and each of its ancestors, and where they lie under the roof."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from support.runs import make_evaluations, make_problem, make_run

from db.measures import Tier
from db.profile import Bottleneck, BottleneckReport, PerformanceState, Profile, Stall
from db.records import Evaluation
from evolve.reports.facts import gather
from evolve.reports.limits import NAMES, ceiling_points, figures_of, limits_of
from evolve.reports.roofline import BOTTOM, LEFT, RIGHT, TOP, roofline

PROBLEM = make_problem()
RUN = make_run(PROBLEM)
EVALUATIONS = make_evaluations(PROBLEM, RUN)
CORRECT = [e for e in EVALUATIONS if e.verdict.is_correct and not e.verdict.duplicate_of]


def limited(evaluation: Evaluation, primary: Bottleneck | None, **profile: object) -> Evaluation:
    report = None
    read = Profile.model_validate({"source": "ncu", **profile})
    if primary is not None:
        state = PerformanceState(primary=primary)
        report = BottleneckReport(tier=Tier.UNDERUTILIZED, source=read.source, state=state, limit="it waits")
    verdict = evaluation.verdict.model_copy(update={"bottleneck": report, "profile": read})
    return evaluation.model_copy(update={"verdict": verdict})


def test_every_bottleneck_has_a_name_for_people() -> None:
    assert set(NAMES) == set(Bottleneck)


def test_a_step_says_what_its_technique_removed() -> None:
    chain = [
        limited(CORRECT[0], Bottleneck.SPILLS),
        limited(CORRECT[1], Bottleneck.MEMORY_LATENCY),
        limited(CORRECT[2], Bottleneck.MEMORY_LATENCY),
        limited(CORRECT[3], None),
    ]
    first, second, third, fourth = limits_of(chain)
    assert first is not None and second is not None and third is not None and fourth is None
    assert (first.removed, first.left) == ("", "")
    assert (second.removed, second.left) == ("register spills", "memory latency")
    assert (third.removed, third.left) == ("", "")
    assert second.source == "Nsight Compute"


def test_nothing_is_removed_where_somebody_else_looked() -> None:
    """The compiler and counters may call one program by two limits."""
    chain = [
        limited(CORRECT[0], Bottleneck.DRAM_BANDWIDTH, source="compiled"),
        limited(CORRECT[1], Bottleneck.MEMORY_LATENCY),
    ]
    _, second = limits_of(chain)
    assert second is not None and (second.removed, second.left) == ("", "")


def test_figures_leave_out_what_nobody_read() -> None:
    assert figures_of(Profile(source="none", memory_sol_pct=12.0)) == ["memory 12%", "compute 0%"]
    full = Profile(
        source="ncu",
        memory_sol_pct=74.0,
        compute_sol_pct=20.0,
        dram_gb_s=3554.0,
        occupancy=0.1875,
        achieved_occupancy=0.1676,
        occupancy_limiter="registers",
        n_registers=168,
        stalls=(Stall(reason="long_scoreboard", cycles=6.4, share=0.51),),
    )
    assert figures_of(full) == [
        "memory 74%",
        "compute 20%",
        "DRAM 3.55 TB/s",
        "occupancy 17% (registers)",
        "168 registers",
        "51% of the waiting is long scoreboard",
    ]


def test_the_lineage_is_drawn_last_and_numbered() -> None:
    facts = gather(PROBLEM, RUN, EVALUATIONS)
    steps = [p.step for p in facts.ceilings if p.step]
    assert steps == list(range(1, len(facts.lineage) + 1))
    assert [p.step for p in facts.ceilings[-len(steps) :]] == steps
    assert all(step.limit is not None for step in facts.lineage)


def test_the_picture_puts_a_program_where_its_figures_say() -> None:
    chain = [limited(CORRECT[0], Bottleneck.ARITHMETIC, memory_sol_pct=50.0, compute_sol_pct=100.0)]
    svg = ElementTree.fromstring(str(roofline(ceiling_points([], chain))))
    (circle,) = [e for e in svg.iter("circle") if "ancestor" in e.get("class", "")]
    assert float(circle.get("cx", "0")) == pytest.approx((LEFT + RIGHT) / 2)
    assert float(circle.get("cy", "0")) == pytest.approx(TOP)
    assert BOTTOM > TOP


def test_nothing_is_drawn_of_nothing() -> None:
    assert roofline([]) == ""
