import pytest

from db.records import (
    Candidate,
    EntryPoint,
    Gate,
    GateResult,
    Latency,
    LatencyKind,
    Lineage,
    Outcome,
    PrecisionClass,
    Profile,
)
from evaluators.cascade import Cascade, Refusal
from evaluators.evaluator import Prepared
from tests.support.runs import make_hardware


def make_cascade() -> Cascade:
    candidate = Candidate(
        candidate_id="r-0-000000",
        run_id="r",
        problem_id="p",
        island=0,
        source="x = 1",
        entry_point=EntryPoint.MODEL,
        lineage=Lineage(operator="seed"),
    )
    gates = (GateResult(gate=Gate.STATIC, passed=True),)
    prepared = Prepared(candidate=candidate, gates=gates, fingerprint="f" * 16, seconds={"prepare": 0.5})
    return Cascade(prepared, make_hardware(), {"torch": "2"}, PrecisionClass.REFERENCE)


LATENCY = Latency(
    kind=LatencyKind.MEASURED,
    method="graph",
    device_us=10.0,
    low_us=9.9,
    high_us=10.1,
    baseline_us=20.0,
    baseline_name="compile",
)


def test_the_first_no_ends_it():
    cascade = make_cascade()
    cascade.admit(GateResult(gate=Gate.CORRECTNESS, passed=True))
    with pytest.raises(Refusal) as refused:
        cascade.admit(GateResult(gate=Gate.MODEL, passed=False, reason="too inexact"))
    verdict = cascade.failed(refused.value)
    assert verdict.outcome is Outcome.FAILED and verdict.reason == "too inexact"
    assert [g.gate for g in verdict.gates] == [Gate.STATIC, Gate.CORRECTNESS, Gate.MODEL]
    assert verdict.latency is None and verdict.fingerprint == "f" * 16


def test_a_no_of_the_speed_gate_refuses_no_program():
    cascade = make_cascade()
    cascade.admit(GateResult(gate=Gate.SPEED, passed=False, reason="slower"))
    verdict = cascade.correct(LATENCY, Profile(source="compiled", memory_sol_pct=85.0))
    assert verdict.is_correct and not verdict.replaces_baseline and verdict.tier == "near_optimal"


def test_a_correct_verdict_says_what_limits_the_program():
    verdict = make_cascade().correct(LATENCY, Profile(source="compiled", memory_sol_pct=85.0))
    assert verdict.bottleneck is not None and verdict.bottleneck.tier == verdict.tier == "near_optimal"
    assert verdict.bottleneck.state.primary == "dram_bandwidth" and verdict.bottleneck.state.architecture == "sm_90"
    assert {e.metric: e.value for e in verdict.bottleneck.evidence}["duration_us"] == LATENCY.device_us
    assert verdict.profile is not None and verdict.profile.duration_us is None


def test_a_yes_of_the_speed_gate_replaces_the_baseline():
    cascade = make_cascade()
    cascade.admit(GateResult(gate=Gate.SPEED, passed=True))
    assert cascade.correct(LATENCY, Profile(source="none")).replaces_baseline


def test_what_cannot_be_judged_has_no_latency():
    verdict = make_cascade().unsupported(Gate.CORRECTNESS, "the interpreter lacks this")
    assert verdict.outcome is Outcome.UNSUPPORTED and verdict.latency is None


def test_phases_add_up_beside_those_of_preparation():
    cascade = make_cascade()
    for _ in range(2):
        with cascade.phase("timing"):
            pass
    assert set(cascade.seconds) == {"prepare", "timing"} and cascade.seconds["timing"] > 0
