"""Records survive JSON unchanged and refuse to contradict themselves."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest
from archive_records import capture, evaluation, hardware, latency, problem, run
from pydantic import ValidationError

from db.errors import ArchiveBusyError, ArchiveError, EvolveError, NotFoundError
from db.hashing import program_id_of
from db.measures import Tier
from db.records import (
    Candidate,
    Evaluation,
    Gate,
    GateResult,
    Outcome,
    Problem,
    Record,
    Tolerance,
    Verdict,
    Workload,
)

RECORDS = [
    problem(),
    problem().model_copy(update={"tolerances": {"float16": Tolerance(rtol=1e-3, atol=1e-2)}}),
    hardware(),
    run(),
    capture(),
    evaluation(1, parents=("a", "b")),
    evaluation(2, latency_us=None),
    evaluation(3).candidate,
    evaluation(3).verdict,
    latency(12.5),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_round_trip_through_json(record: Record) -> None:
    assert type(record).model_validate_json(record.model_dump_json()) == record
    assert type(record).model_validate(record.model_dump()) == record


def test_an_infinite_error_ratio_survives_json() -> None:
    verdict = evaluation().verdict.model_copy(update={"error_ratio": math.inf})
    assert Verdict.model_validate_json(verdict.model_dump_json()).error_ratio == math.inf


def test_records_are_frozen_and_know_their_fields() -> None:
    with pytest.raises(ValidationError):
        run().status = "finished"  # type: ignore[assignment, misc]
    with pytest.raises(ValidationError, match="nonsense"):
        Workload(name="full", role="full", nonsense=1)  # type: ignore[call-arg]


def changed(record: Record, **changes: Any) -> Record:
    """The record with other values, validated."""
    return type(record).model_validate(record.model_dump() | changes)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"latency": None}, "needs a latency"),
        ({"tier": None}, "needs a latency"),
        ({"outcome": Outcome.FAILED}, "must not have a latency"),
        ({"outcome": Outcome.UNSUPPORTED}, "must not have a latency"),
        ({"gates": [GateResult(gate=Gate.MODEL, passed=False, reason="ratio 104")]}, "no refusing gate"),
    ],
)
def test_a_correct_verdict_may_not_contradict_itself(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        changed(evaluation().verdict, **changes)


def test_a_failed_verdict_names_its_gate() -> None:
    failed = evaluation(latency_us=None).verdict
    with pytest.raises(ValidationError, match="needs the gate that refused"):
        changed(failed, gates=[GateResult(gate=Gate.STATIC, passed=True)])
    with pytest.raises(ValidationError, match="must not have a latency"):
        changed(failed, replaces_baseline=True)


def test_slower_than_the_baseline_is_still_correct() -> None:
    refused = GateResult(gate=Gate.SPEED, passed=False, reason="1.2 times slower than eager")
    slow = changed(evaluation().verdict, gates=[refused], replaces_baseline=False)
    assert slow.is_correct and slow.reason == "1.2 times slower than eager"  # type: ignore[attr-defined]


def test_a_refusal_has_a_reason() -> None:
    with pytest.raises(ValidationError, match="without a reason"):
        GateResult(gate=Gate.STATIC, passed=False)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0, -1.0])
@pytest.mark.parametrize("field", ["device_us", "low_us", "high_us", "baseline_us"])
def test_a_latency_is_finite_and_positive(field: str, value: float) -> None:
    with pytest.raises(ValidationError, match="finite and positive"):
        changed(latency(10.0), **{field: value})


def test_speedup_is_baseline_over_program() -> None:
    assert latency(100.0).speedup == 4.0


def test_a_verdict_belongs_to_its_candidate() -> None:
    with pytest.raises(ValidationError, match="is not for"):
        Evaluation(candidate=evaluation(1).candidate, verdict=evaluation(2).verdict)


def test_a_problem_needs_both_roles() -> None:
    with pytest.raises(ValidationError, match="role small"):
        Problem(name="p", kind="triton", source="", workloads=(Workload(name="f", role="full"),))


def test_the_id_of_a_problem_is_what_it_asks() -> None:
    asked = problem()
    commented = asked.model_copy(update={"source": "# a comment\n" + asked.source})
    assert commented.problem_id == asked.problem_id
    assert asked.model_copy(update={"seeds": ()}).problem_id == asked.problem_id
    assert problem(n=8192).problem_id != asked.problem_id
    looser = asked.model_copy(update={"tolerances": {"float32": Tolerance(rtol=1e-2, atol=1e-2)}})
    assert looser.problem_id != asked.problem_id


def test_a_candidate_is_named_by_its_program() -> None:
    one = evaluation(1).candidate
    spelt = Candidate.model_validate(one.model_dump() | {"source": one.source + "# the same\n", "candidate_id": "x"})
    assert spelt.program_id == one.program_id


def test_a_fingerprint_is_the_work_and_its_triton() -> None:
    one = capture()
    assert one.model_copy().fingerprint == one.fingerprint
    launch = one.launches[0].model_copy(update={"num_warps": 4})
    for change in ({"triton_version": "3.6.0"}, {"launches": (launch,)}, {"torch_ops": ()}, {"workload": "small"}):
        assert one.model_copy(update=change).fingerprint != one.fingerprint
    renamed = one.launches[0].model_copy(update={"kernel": "other_name"})
    assert one.model_copy(update={"launches": (renamed,)}).fingerprint == one.fingerprint


def test_tier_is_part_of_a_correct_verdict() -> None:
    assert evaluation(tier=Tier.COMPUTE_BOUND).verdict.tier is Tier.COMPUTE_BOUND


@pytest.mark.parametrize("error", [ArchiveError("a", "b"), ArchiveBusyError("a", "b", 3), NotFoundError("a", "b")])
def test_errors_keep_message_and_hint_across_processes(error: EvolveError) -> None:
    import pickle

    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.message, copy.hint) == (type(error), "a", "a", "b")
    assert getattr(copy, "owner_pid", None) == getattr(error, "owner_pid", None)


def test_a_candidate_carries_its_program_id_and_a_copy_with_another_source_has_its_own() -> None:
    candidate = evaluation(1).candidate
    sent = pickle.loads(pickle.dumps(candidate))
    assert sent == candidate
    assert sent.program_id == candidate.program_id
    assert "program_id" in sent.__dict__
    other = candidate.model_copy(update={"source": "def kernel_function(x):\n    return x\n"})
    assert other.program_id == program_id_of(other.source, other.entry_point) != candidate.program_id
    assert candidate.model_copy(update={"island": 3}).program_id == candidate.program_id
