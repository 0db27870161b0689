"""Whole models: the order of the searches, the budget, what is put together after a refusal, and the outcome.

Models were taken apart on an H200; searches and verdicts are numbers that the tests choose, the stitching is real.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import typer
from ray.exceptions import RayActorError

from db.errors import ArchiveError, DeviceError
from db.live import open_for_reading
from db.records import SEED, Evaluation, Gate, Lineage, Problem
from evaluators.decomposition.classify import ModelOutcome, RootCause
from evaluators.problems import load_problem
from evolve.budget import AS_MANY_AS_FIT
from evolve.cli.model_view import apart_lines, attempt_line, begin_line, finish_model, found_line, outcome_words
from evolve.config import LanguageSettings, make_config
from evolve.events import Event, Judged, Progress, RunResult
from evolve.models.budget import LEAST, Allotment, allotted, with_share
from evolve.models.choice import best_apart
from evolve.models.delivery import MOST_ATTEMPTS, deliver, suspect
from evolve.models.improve import INTERRUPTED, NO_BUDGET, WHOLE, Tools, improve
from evolve.models.judging import attempt_of, way_of, with_fixed_shapes
from evolve.models.output import write_model
from evolve.models.records import (
    Attempt,
    Found,
    PartResult,
    PutTogether,
    SearchBegins,
    SearchEnded,
)
from evolve.models.searching import found_by, reason_of, search_one, speedup_over_seed
from tests.support.decompositions import decomposition_of
from tests.support.runs import make_problem, make_run, one_evaluation
from tests.support.whole_models import FIRST, GROUP, LAYOUT, SECOND, Bench, accepted, always, part, too_slow, wrong

# --------------------------------------------------------------------------------------------------------- the order


def test_parts_are_searched_in_order_of_their_share_and_get_budget_by_it() -> None:
    bench = Bench("conv_epilogue", {}, always(accepted(1.1)))
    ended = bench.run(200)
    assert [name for name, _ in bench.searched] == [GROUP, FIRST, SECOND, LAYOUT]
    given = [allotment.evaluations for _, allotment in bench.searched]
    assert sum(given) == 200 and given == sorted(given, reverse=True) and given[0] == 88  # 15.2% of 34.5%
    assert [event.name for event in bench.events if isinstance(event, SearchBegins)] == [p.name for p in ended.parts]


def with_efficiencies(bench: Bench, **efficiencies: float) -> Bench:
    parts = [p.model_copy(update={"efficiency": efficiencies.get(p.part.name, 0.0)}) for p in bench.decomposition.parts]
    bench.decomposition = bench.decomposition.model_copy(update={"parts": tuple(parts)})
    return bench


def test_a_part_at_its_floor_comes_last_and_gets_little() -> None:
    bench = with_efficiencies(Bench("conv_epilogue", {}, always(accepted(1.1))), **{GROUP: 1.0, FIRST: 0.5})
    bench.run(200)
    given = {name: allotment.evaluations for name, allotment in bench.searched}
    assert list(given) == [SECOND, FIRST, LAYOUT, GROUP]  # 5.4%, 4.9%, 4.1%, 1.5% of the time may be won back
    assert given[SECOND] == 68 and given[GROUP] == pytest.approx(19, abs=1) and sum(given.values()) == 200
    assert "100% of bandwidth" in apart_lines(bench.decomposition)[1]


def test_a_part_that_another_stands_for_waits_for_that_one_however_little_it_may_gain() -> None:
    bench = with_pieces(Bench("conv_epilogue", {GROUP: 1.3}, always(accepted(1.1))), GROUP)
    bench = with_efficiencies(bench, **{GROUP: 1.0})
    ended = bench.run(200)
    assert [name for name, _ in bench.searched] == [LAYOUT, GROUP]
    assert {p.name for p in ended.parts if p.found.reason.startswith("a part of")} == {FIRST, SECOND}
    bench = with_efficiencies(with_pieces(Bench("conv_epilogue", {}, always(accepted(1.1))), GROUP), **{GROUP: 1.0})
    reasons = {p.name: p.found.reason for p in bench.run(200).parts}  # it wins nothing: the others would be due
    assert [reasons[name] for name in (FIRST, SECOND)] == [NO_BUDGET, NO_BUDGET]


def test_a_small_budget_goes_to_the_parts_that_take_the_most_time() -> None:
    bench = Bench("conv_epilogue", {}, always(accepted(1.1)))
    ended = bench.run(2 * LEAST)
    assert [allotment.evaluations for _, allotment in bench.searched] == [LEAST, LEAST]
    assert [p.found.reason for p in ended.parts[2:]] == [NO_BUDGET, NO_BUDGET]


def test_time_is_shared_out_too_and_what_is_left_goes_on() -> None:
    left = Allotment(100, 60.0)
    assert allotted(left, [0.75, 0.25]) == Allotment(75, 45.0)
    assert allotted(left.less(10, 20.0), [0.1]) == Allotment(90, 40.0)
    assert not left.less(0, 61.0).is_enough and not left.less(95, 0.0).is_enough


def test_a_budget_of_time_alone_limits_no_verdicts() -> None:
    whole = Allotment(AS_MANY_AS_FIT, 60.0)
    part = allotted(whole.less(500, 20.0), [0.25, 0.75])
    assert part == Allotment(AS_MANY_AS_FIT, 10.0) and part.share_of(whole) == pytest.approx(1 / 6)
    assert Allotment(50, 10.0).share_of(Allotment(200, 60.0)) == 0.25


def test_limits_on_language_models_are_those_of_all_searches_together() -> None:
    shared = with_share(LanguageSettings(budget_usd=2.0, budget_calls=10), 0.25)
    assert (shared.budget_usd, shared.budget_calls, shared.budget_s) == (0.5, 2, None)


def test_an_interrupt_ends_the_searches_and_what_was_won_is_put_together() -> None:
    bench = Bench("conv_epilogue", {GROUP: 2.0}, always(accepted(1.08)))
    bench.interrupts_after = GROUP
    ended = bench.run()
    assert len(bench.searched) == 1 and ended.is_interrupted
    assert {p.found.reason for p in ended.parts[1:]} == {INTERRUPTED}
    assert ended.result.outcome is ModelOutcome.OPTIMIZED


def with_pieces(bench: Bench, *names: str) -> Bench:
    """These parts, and no others, are pieces of the graph."""
    parts = [
        p.model_copy(update={"reference": "aten" if p.part.name in names else "kernel"})
        for p in bench.decomposition.parts
    ]
    bench.decomposition = bench.decomposition.model_copy(update={"parts": tuple(parts)})
    return bench


def test_a_partial_result_inside_a_piece_of_the_graph_is_not_searched_beside_it() -> None:
    bench = with_pieces(Bench("conv_epilogue", {GROUP: 1.3}, always(accepted(1.1))), GROUP, SECOND)
    ended = bench.run(200)
    given = {name: allotment.evaluations for name, allotment in bench.searched}
    assert list(given) == [GROUP, SECOND, LAYOUT] and given[GROUP] == 123  # 15.2% of 24.7%
    reasons = {p.name: p.found.reason for p in ended.parts}
    assert list(reasons) == [GROUP, FIRST, SECOND, LAYOUT]
    assert reasons[FIRST] == "a part of part_20_28, which got faster as a whole" and reasons[SECOND] == ""


def test_where_the_larger_part_wins_nothing_its_kernels_get_what_is_left() -> None:
    bench = with_pieces(Bench("conv_epilogue", {GROUP: 1.01, FIRST: 2.0}, always(accepted(1.1))), GROUP)
    found = bench.search

    def search(name: str, problem: Problem, allotment: Allotment) -> Found:
        n_judged = LEAST if name == GROUP else allotment.evaluations  # it stagnates
        return found(name, problem, allotment).model_copy(update={"n_judged": n_judged})

    ended = improve(bench.decomposition.problem, Tools(bench.take_apart, search, bench.judge), Allotment(100))
    given = {name: allotment.evaluations for name, allotment in bench.searched}
    assert given == {GROUP: 79, FIRST: 46, SECOND: 25, LAYOUT: 19}  # 90 are left by their shares of 19.3%
    assert [p.name for p in ended.parts if p.is_used] == [FIRST]


def test_kernels_inside_a_run_that_is_no_piece_itself_are_searched_as_ever() -> None:
    bench = with_pieces(Bench("conv_epilogue", {GROUP: 1.3}, always(accepted(1.1))))
    bench.run(200)
    assert [name for name, _ in bench.searched] == [GROUP, FIRST, SECOND, LAYOUT]


# --------------------------------------------------------------------------------------------------- searches that fail


RAISES = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x @ missing


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []
"""


@pytest.mark.usefixtures("ray_session")
def test_parts_whose_searches_fail_are_told_and_the_others_go_on(tmp_path: Path) -> None:
    """The reference of one raises where it is judged, another has no place for its archive."""
    bench = Bench("conv_epilogue", {FIRST: 2.0}, always(accepted(1.1)))
    (tmp_path / "file").touch()
    raises = bench.decomposition.parts[0].problem.model_copy(update={"source": RAISES, "kind": "kernelbench"})

    def search(name: str, problem: Problem, allotment: Allotment) -> Found:
        archive = tmp_path / ("a.duckdb" if name == GROUP else "file/a.duckdb")
        config = make_config({"problem": "m", "device": "cpu", "evaluations": 200, "archive": str(archive)})
        real = partial(search_one, config=config, folder=tmp_path / "searches", on_event=bench.events.append)
        if name == GROUP:
            return real(name, raises, allotment)
        return real(name, problem, allotment) if name == LAYOUT else bench.search(name, problem, allotment)

    tools = Tools(bench.take_apart, search, bench.judge)
    ended = improve(bench.decomposition.problem, tools, Allotment(200), on_event=bench.events.append)
    failed = {p.name: p.found.reason for p in ended.parts if p.found.has_failed}
    assert list(failed) == [GROUP, LAYOUT]
    assert "NameError: name 'missing' is not defined" in failed[GROUP] and "cannot make the folder" in failed[LAYOUT]
    told = {e.name: e.found.reason for e in bench.events if isinstance(e, SearchEnded) and e.found.has_failed}
    assert told == failed and [name for name, _ in bench.searched] == [FIRST, SECOND]
    assert ended.result.outcome is ModelOutcome.OPTIMIZED and [p.name for p in ended.parts if p.is_used] == [FIRST]
    written = write_model(ended.model_copy(update={"attempts": ()}), tmp_path / "a.duckdb", tmp_path / "out")
    rows = json.loads((Path(written.folder) / "summary.json").read_text())["parts"]
    assert {row["name"]: row["reason"] for row in rows if row["has_failed"]} == failed


@pytest.mark.usefixtures("ray_session")
def test_a_search_that_fails_says_how_many_verdicts_there_were(tmp_path: Path) -> None:
    archive, events = tmp_path / "a.duckdb", list[Event]()

    def watch(event: Event) -> None:
        events.append(event)
        if isinstance(event, Judged):
            raise ArchiveError("no space left", "make some")

    problem = load_problem("fused_add_rms_norm")
    values = {"problem": "m", "device": "cpu", "islands": 1, "evaluations": 40, "archive": str(archive)}
    found = search_one("part", problem, Allotment(40), config=make_config(values), folder=tmp_path, on_event=watch)
    assert (found.has_failed, found.reason, found.source) == (True, "no space left", "")
    assert found.n_judged == sum(isinstance(one, Judged) for one in events) >= 1
    with contextlib.closing(open_for_reading(archive, wait_s=60.0)) as reader:
        assert len(reader.evaluations(found.run_id)) >= found.n_judged
    assert found_line("part", found) == f"part: no space left, {found.n_judged} judged"


def test_where_every_search_fails_nobody_says_that_no_part_got_faster() -> None:
    bench = Bench("conv_epilogue", {}, always(accepted(1.1)))
    full = Found(reason="cannot write a.duckdb: no space left", has_failed=True)
    ended = improve(bench.decomposition.problem, Tools(bench.take_apart, lambda *_: full, bench.judge), Allotment(200))
    assert (ended.result.outcome, ended.result.cause) == (ModelOutcome.FALLBACK, RootCause.SEARCHES)
    assert ended.result.reason == f"{GROUP}: cannot write a.duckdb: no space left"


def test_where_the_search_of_the_module_itself_fails_nobody_says_that_its_kernels_were_wrong() -> None:
    bench = Bench("conv_epilogue", {}, always(accepted(1.1)))
    full = Found(reason="cannot write a.duckdb: no space left", has_failed=True)
    tools = Tools(bench.take_apart, lambda *_: full, bench.judge)
    ended = improve(bench.decomposition.problem, tools, Allotment(200), tries_whole=True)
    assert ended.whole == full and ended.result.cause == RootCause.SEARCHES


def test_a_worker_that_failed_is_a_reason_and_a_fault_of_evolve_is_none() -> None:
    inside = ExceptionGroup("tasks", [ValueError("a bug"), RayActorError()])
    assert reason_of(inside).startswith("a worker failed: The actor")
    assert reason_of(ExceptionGroup("tasks", [DeviceError("no GPU any more", "see doctor")])) == "no GPU any more"
    assert reason_of(ExceptionGroup("tasks", [ValueError("a bug")])) == ""


# --------------------------------------------------------------------------------------------------------- the choice


def test_of_parts_that_share_launches_the_larger_gain_wins() -> None:
    group, one, two = part("g", 2, 5, 0.4, 1.2), part("a", 2, 2, 0.2, 2.0), part("b", 5, 5, 0.2, 1.04)
    assert [p.name for p in best_apart([group, one, two])] == ["a", "b"]
    assert [p.name for p in best_apart([group.model_copy(update={"share": 0.9}), one, two])] == ["g"]


def test_a_part_that_gains_no_more_than_noise_is_no_winner() -> None:
    assert best_apart([part("a", 0, 0, 0.5, 1.03), part("b", 1, 1, 0.5, None), part("c", 2, 2, 0.5, 0.9)]) == []


# -------------------------------------------------------------------------------------------------------- refusals


def test_the_part_that_the_reason_names_is_left_out_first() -> None:
    chosen = [part("part_1_1", 1, 1, 0.5, 2.0), part("part_2_2", 2, 2, 0.1, 1.1)]
    assert suspect(wrong("kernel part_1_1_softmax reads out of bounds", "correctness"), chosen) is chosen[0]
    assert suspect(too_slow(0.9), chosen) is chosen[1]  # the least to lose
    inexact = [chosen[0], part("part_3_3", 3, 3, 0.9, 3.0, ratio=8.0)]
    assert suspect(wrong(), inexact) is inexact[1]
    unknown = [*chosen, part("part_3_3", 3, 3, 0.2, 3.0, ratio=None)]
    assert suspect(wrong(), unknown) is unknown[2] and suspect(too_slow(0.9), unknown) is unknown[1]


def test_a_part_that_hurts_is_dropped() -> None:
    speedups = {FIRST: 2.0, SECOND: 1.5, LAYOUT: 1.2}
    bench = Bench("conv_epilogue", speedups, lambda names: too_slow(0.97) if LAYOUT in names else accepted(1.06))
    ended = bench.run()
    assert [attempt.parts for attempt in ended.attempts] == [(LAYOUT, FIRST, SECOND), (FIRST, SECOND)]
    assert {p.name for p in ended.parts if p.is_used} == {FIRST, SECOND}
    assert ended.result.outcome is ModelOutcome.OPTIMIZED and ended.result.speedup == 1.06
    assert ended.best_source == ended.attempts[-1].source


def test_after_two_retries_the_best_subset_is_looked_for() -> None:
    winners = [part(name, i, i, share, 2.0) for i, (name, share) in enumerate([("a", 0.4), ("b", 0.3), ("c", 0.2)])]
    only_b = deliver(winners, lambda chosen, _: _with_parts(chosen, {"b"}))
    assert [a.parts for a in only_b] == [("a", "b", "c"), ("a", "b"), ("a",), ("b",)]
    asked = deliver(winners, lambda chosen, _: _with_parts(chosen, {"a"}, wrong()))
    assert [a.parts for a in asked] == [("a", "b", "c"), (), ("a", "b"), ("a",)]
    none = deliver(winners * 4, lambda chosen, _: _with_parts(chosen, {"z"}))
    assert len(none) == MOST_ATTEMPTS and len({a.parts for a in none}) == MOST_ATTEMPTS
    assert deliver([], lambda chosen, _: _with_parts(chosen, set())) == []


def test_a_model_that_leaves_work_out_is_judged_without_any_winner() -> None:
    bench = Bench("wide_mlp", {}, always(accepted(5.0)))
    bench.decomposition = bench.decomposition.model_copy(update={"left_out": ("a product with a diagonal matrix",)})
    ended = bench.run()
    assert bench.searched == [] and [attempt.parts for attempt in ended.attempts] == [()]
    assert ended.result.outcome is ModelOutcome.OPTIMIZED and ended.result.speedup == 5.0
    assert "left out: a product with a diagonal matrix" in ended.best_source.splitlines()[0]
    assert apart_lines(bench.decomposition)[0] == "left out: a product with a diagonal matrix"
    bench = Bench("wide_mlp", {}, always(too_slow(0.9)))
    bench.decomposition = bench.decomposition.model_copy(update={"left_out": ("half of a product",)})
    ended = bench.run()
    assert (ended.result.cause, ended.best_source) == (RootCause.GEMM, "")


def test_winners_that_hurt_are_dropped_down_to_what_leaves_work_out() -> None:
    winners = [part(name, i, i, 0.3, 2.0) for i, name in enumerate(["a", "b"])]
    tried = deliver(winners, lambda chosen, _: _with_parts(chosen, set()), is_lean=True)
    assert [a.parts for a in tried] == [("a", "b"), ("b",), ("a",), ()] and tried[-1].is_accepted
    assert deliver(winners, lambda chosen, _: _with_parts(chosen, set()))[-1].parts == ("a",)
    many = [part(name, i, i, 0.1, 2.0) for i, name in enumerate("abcdefgh")]
    tried = deliver(many, lambda chosen, _: _with_parts(chosen, set()), is_lean=True)
    assert len(tried) == MOST_ATTEMPTS and tried[-1].is_accepted and tried[-1].parts == ()


def _with_parts(chosen: Sequence[PartResult], right: set[str], other: Attempt | None = None) -> Attempt:
    """Only the `right` parts together are accepted; none at all are what the compiler wrote, and that is correct."""
    names = tuple(p.name for p in chosen)
    answer = accepted(1.2) if set(names) == right else (other or too_slow(0.98)) if names else too_slow(1.0)
    return answer.model_copy(update={"parts": names})


def test_where_the_compilers_own_code_is_refused_no_winner_is_blamed() -> None:
    bench = Bench("conv_epilogue", {FIRST: 2.0, SECOND: 1.5, LAYOUT: 1.2}, always(wrong("19.7 times the error")))
    ended = bench.run()
    assert [attempt.parts for attempt in ended.attempts] == [(LAYOUT, FIRST, SECOND), ()]
    assert (ended.result.outcome, ended.result.cause) == (ModelOutcome.FALLBACK, RootCause.CORRECTNESS)
    assert ended.result.reason == "what the compiler wrote is refused by the model gate: 19.7 times the error"


def test_a_winner_that_cannot_stand_in_a_larger_file_is_left_out() -> None:
    bench = Bench("conv_epilogue", {FIRST: 2.0, SECOND: 1.5}, always(accepted(1.05)))
    found = bench.search

    def search(name: str, problem: Problem, allotment: Allotment) -> Found:
        broken = {"source": "print(1)\n"} if name == SECOND else {}
        return found(name, problem, allotment).model_copy(update=broken)

    ended = improve(bench.decomposition.problem, Tools(bench.take_apart, search, bench.judge), Allotment(200))
    assert [attempt.refused_by for attempt in ended.attempts] == ["stitch", ""]
    assert [p.name for p in ended.parts if p.is_used] == [FIRST]


# --------------------------------------------------------------------------------------------------------- outcomes


def test_a_model_that_is_all_products_falls_back_at_once() -> None:
    bench = Bench("wide_mlp", {}, always(accepted(2.0)))
    ended = bench.run()
    assert bench.searched == [] and ended.attempts == () and ended.best_source == ""
    assert (ended.result.outcome, ended.result.cause) == (ModelOutcome.FALLBACK, RootCause.GEMM)
    assert outcome_words(ended).startswith("fallback (GEMM-dominant): keep the baseline, 99.6% of device time")


def test_a_model_without_kernels_falls_back_at_once() -> None:
    ended = Bench("lstm", {}, always(accepted(2.0))).run()
    assert (ended.result.outcome, ended.result.cause) == (ModelOutcome.FALLBACK, RootCause.NO_KERNELS)


def test_a_module_with_somebody_to_ask_is_tried_as_a_whole_within_a_small_share() -> None:
    bench = Bench("lstm", {WHOLE: 1.4}, always(wrong()))
    ended = bench.run(tries_whole=True)
    assert bench.searched == [(WHOLE, Allotment(40, 12.0))]
    assert ended.result.outcome is ModelOutcome.OPTIMIZED and ended.best_source
    missed = Bench("lstm", {}, always(wrong()))
    nothing = Found(reason="no program was correct")
    tools = Tools(missed.take_apart, lambda *_: nothing, missed.judge)
    ended = improve(missed.decomposition.problem, tools, Allotment(200), tries_whole=True)
    assert ended.result.outcome is ModelOutcome.SYNTHESIS_FAILED


def test_a_module_that_cannot_be_taken_apart_gets_all_of_the_budget_as_a_whole() -> None:
    bench = Bench("lstm", {WHOLE: 1.4}, always(wrong()))
    in_pieces = {"n_graphs": 3, "reason": "the model falls into 3 graphs"}
    bench.decomposition = bench.decomposition.model_copy(update=in_pieces)
    ended = bench.run(tries_whole=True)
    assert bench.searched == [(WHOLE, Allotment(200, 60.0))] and ended.result.speedup == 1.4


def test_the_better_of_the_whole_and_the_parts_is_delivered() -> None:
    better = Bench("conv_epilogue", {GROUP: 2.0, WHOLE: 1.3}, always(accepted(1.1))).run(tries_whole=True)
    assert better.result.speedup == 1.3 and not any(p.is_used for p in better.parts)
    worse = Bench("conv_epilogue", {GROUP: 2.0, WHOLE: 1.05}, always(accepted(1.1))).run(tries_whole=True)
    assert worse.result.speedup == 1.1 and [p.name for p in worse.parts if p.is_used] == [GROUP]


def test_nothing_won_is_matched_and_nothing_is_delivered() -> None:
    ended = Bench("conv_epilogue", {GROUP: 1.01}, always(accepted(2.0))).run()
    assert ended.result.outcome is ModelOutcome.MATCHED and ended.attempts == () and ended.best_source == ""
    assert ended.result.reason == "no part got faster"


def test_within_three_percent_is_matched_whatever_the_gate_says() -> None:
    proved = Bench("conv_epilogue", {GROUP: 2.0}, always(accepted(1.02))).run()
    assert proved.result.outcome is ModelOutcome.MATCHED and proved.best_source == ""
    unproved = Bench("conv_epilogue", {GROUP: 2.0}, always(too_slow(1.2, "a call takes 1.4 times that"))).run()
    assert unproved.result.outcome is ModelOutcome.MATCHED and unproved.best_source == ""


@pytest.mark.parametrize(
    ("attempt", "cause", "n_attempts"), [(too_slow(0.8), RootCause.SPEED, 3), (wrong(), RootCause.CORRECTNESS, 4)]
)
def test_a_model_that_no_subset_improves_falls_back_with_the_gate(
    attempt: Attempt, cause: RootCause, n_attempts: int
) -> None:
    bench = Bench("conv_epilogue", {GROUP: 2.0, LAYOUT: 1.5}, lambda names: attempt if names else too_slow(0.9))
    ended = bench.run()
    assert (ended.result.outcome, ended.result.cause) == (ModelOutcome.FALLBACK, cause)
    assert len(ended.attempts) == n_attempts and ended.best_source == ""


# ------------------------------------------------------------------------------------------------------- what is left


def test_the_folder_holds_the_delivered_file_the_winners_and_a_summary(tmp_path: Path) -> None:
    attempt = accepted(1.1).model_copy(update={"program_id": ""})  # of no run: there is nothing to report on
    ended = Bench("conv_epilogue", {GROUP: 2.0}, always(attempt)).run()
    written = write_model(ended, tmp_path / "a.duckdb", tmp_path / "out")
    assert Path(written.best_path).read_text() == ended.best_source
    assert "class ModelNew" in ended.best_source and "import evaluators" not in ended.best_source
    assert {path.stem for path in (tmp_path / "out" / "parts").glob("*.py")} == {p.name for p in ended.parts}
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["outcome"], summary["root_cause"], summary["speedup"]) == ("optimized", None, 1.1)
    assert summary["parts"][0]["is_used"] and summary["parts"][0]["gain"] == pytest.approx(0.076, abs=1e-3)
    assert summary["left_alone"][0]["reason"] == "it takes 0.3% of device time"


def test_people_read_parts_with_their_shares_and_what_became_of_each_file() -> None:
    decomposition = decomposition_of("conv_epilogue")
    lines = apart_lines(decomposition)
    assert lines[0].startswith("4 parts worth a search, 80.5% of 389.") and "15.2%" in lines[1]
    assert begin_line(SearchBegins(name=GROUP, share=0.152, evaluations=88, time_s=61.0)).endswith("1m01s at most")
    bench = Bench("conv_epilogue", {GROUP: 2.0}, always(wrong("too far off")))
    bench.run()
    said, bare = [attempt_line(e.attempt) for e in bench.events if isinstance(e, PutTogether)]
    assert said == f"put together with {GROUP}: refused by model: too far off"
    assert bare.startswith("put together with no winner: refused")
    assert lines[-2:] == [f"note: {note}" for note in decomposition.notes] and "evaluation mode" in lines[-2]
    whole = apart_lines(decomposition_of("lstm"))
    assert whole[0].startswith("not searched in parts: no Triton kernels") and whole[-1].startswith("note: shapes are")


def test_an_interrupted_model_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench("conv_epilogue", {}, always(accepted(1.1)))
    bench.interrupts_after = GROUP
    with pytest.raises(typer.Exit) as ended:
        finish_model(bench.run(), archive="lab.duckdb", module="my_model.py")
    assert ended.value.exit_code == 130
    again = "evolve run my_model.py --parts always --archive lab.duckdb --seed-from lab.duckdb"
    assert f"resume    {again}" in " ".join(capsys.readouterr().out.split("\n"))


def test_files_that_are_not_faster_are_the_reason_for_a_match() -> None:
    ended = Bench("conv_epilogue", {GROUP: 1.08}, always(too_slow(0.98))).run()
    assert ended.result.outcome is ModelOutcome.MATCHED
    assert ended.result.reason == "put together, the fastest file is at 0.98x: not faster than compile beyond the noise"


def test_the_whole_is_judged_at_the_sizes_that_it_was_compiled_for() -> None:
    problem = decomposition_of("linear_layernorm_gelu").problem
    assert problem.small.sizes != problem.full.sizes
    fixed = with_fixed_shapes(problem)
    assert fixed.small.sizes == fixed.full.sizes == problem.full.sizes and fixed.small.role == "small"


def test_max_autotune_is_taken_apart_where_it_is_clearly_faster() -> None:
    assert way_of({"eager": 9.0, "compile": 5.0, "max-autotune": 4.0}) == "max-autotune"
    assert way_of({"eager": 9.0, "compile": 5.0, "max-autotune": 4.95}) == "compile"
    assert way_of({"eager": 3.0}) == "compile" and way_of({"max-autotune": 4.0}) == "max-autotune"


@pytest.mark.parametrize(("us", "wins", "speedup"), [(50.0, True, 2.0), (50.0, False, 1.0), (125.0, False, 0.8)])
def test_a_program_of_the_module_that_may_not_replace_it_is_no_gain(us: float, wins: bool, speedup: float) -> None:
    problem = make_problem()
    run = make_run(problem)
    best = one_evaluation(problem, run, 1, us, wins=wins)
    result = RunResult(run=run, problem=problem, progress=Progress(), best=best, replaces_baseline=wins)
    assert found_by(result, "", is_whole=True).speedup == pytest.approx(speedup)


def test_a_part_is_compared_with_the_kernel_that_the_model_runs_now() -> None:
    problem = make_problem()
    run = make_run(problem)
    own, elite, best = (one_evaluation(problem, run, n, us) for n, us in ((1, 90.0), (2, 45.0), (3, 30.0)))
    judged = [_of_seed(own, problem.name), _of_seed(elite, "earlier.duckdb"), best]
    assert speedup_over_seed(best, judged, problem.name) == 3.0
    assert speedup_over_seed(best, judged[1:], problem.name) == pytest.approx(100.0 / 30.0)  # its baseline takes 100


def _of_seed(evaluation: Evaluation, origin: str) -> Evaluation:
    candidate = evaluation.candidate.model_copy(update={"lineage": Lineage(operator=SEED, seeded_from=origin)})
    return evaluation.model_copy(update={"candidate": candidate})


def test_a_part_that_starts_from_another_kernel_is_compared_with_the_compilers() -> None:
    bench = Bench("conv_epilogue", {FIRST: 1.0}, always(accepted(1.5)))
    parts = [p.model_copy(update={"is_rewritten": p.part.name == FIRST}) for p in bench.decomposition.parts]
    bench.decomposition = bench.decomposition.model_copy(update={"parts": tuple(parts)})

    def search(name: str, problem: Problem, allotment: Allotment) -> Found:
        return bench.search(name, problem, allotment).model_copy(update={"over_baseline": 4.0})

    ended = improve(bench.decomposition.problem, Tools(bench.take_apart, search, bench.judge), Allotment(200))
    assert [p.name for p in ended.parts if p.is_used] == [FIRST]
    assert {p.name: p.found.speedup for p in ended.parts}[FIRST] == 4.0


def test_what_a_gate_says_of_a_whole_model_is_what_the_attempt_says() -> None:
    problem = make_problem()
    run = make_run(problem)
    one = part("part_1_1", 1, 1, 0.5, 2.0)
    refused = one_evaluation(problem, run, 1, None, refused=(Gate.MODEL, "too far off")).verdict
    said = attempt_of("source", [one], refused)
    assert (said.parts, said.refused_by, said.reason) == (("part_1_1",), "model", "too far off")
    assert not said.is_correct and said.speedup is None
    won = attempt_of("source", [one], one_evaluation(problem, run, 2, 50.0, wins=True).verdict)
    assert won.is_accepted and won.speedup == 2.0 and won.refused_by == ""
