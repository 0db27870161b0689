"""Which candidates are not worth GPU time, and that one in eight of them is judged all the same."""

from __future__ import annotations

from pathlib import Path

from support.workers import make_candidate

from db.records import SEED, Candidate, Lineage
from evolve.preranking import ONE_IN, PreRanker


def child(number: int, *parents: Candidate, operator: str = "retune") -> Candidate:
    lineage = Lineage(operator=operator, parents=tuple(p.program_id for p in parents))
    return make_candidate(number, Path(), which=number).model_copy(update={"lineage": lineage})


def test_a_candidate_is_compared_with_its_fastest_parent() -> None:
    ranker = PreRanker(1.1)
    slow, fast = child(1), child(2)
    assert ranker.objection(slow, 200.0) == ranker.objection(fast, 100.0) == ""
    assert ranker.objection(child(3, slow), 150.0) == ""
    objections = [ranker.objection(child(n, slow, fast), 150.0) for n in range(10, 10 + 8 * ONE_IN)]
    judged = objections.count("")
    assert 1 <= judged <= 3 * ONE_IN  # one in eight, by the program's id
    assert all("1.50 times" in objection for objection in objections if objection)


def test_nothing_is_left_out_without_a_parent_to_compare_with() -> None:
    ranker = PreRanker(1.1)
    unknown = child(1)
    assert all(ranker.objection(child(n, unknown), 1000.0) == "" for n in range(2, 20))
    ranker.objection(unknown, 1.0)
    assert all(ranker.objection(child(n, unknown, operator=SEED), 1000.0) == "" for n in range(20, 40))
    assert all(ranker.objection(child(n, unknown), None) == "" for n in range(40, 60))


def test_nothing_is_left_out_where_nobody_asked_for_it() -> None:
    ranker = PreRanker(0.0)
    parent = child(1)
    ranker.objection(parent, 1.0)
    assert all(ranker.objection(child(n, parent), 1000.0) == "" for n in range(2, 40))
