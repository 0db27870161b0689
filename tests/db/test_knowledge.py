"""Knowledge: what the archive says that techniques gained, and what is kept apart."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pytest
from archive_records import evaluation, filled, problem, program_of, run
from pydantic import ValidationError

from db.archive import ProgramArchive
from db.knowledge import TechniqueEvidence, added, summed
from db.live import ArchiveServer, LiveArchive, open_for_reading
from db.measures import Tier
from db.migrations import load_steps, migrate
from db.profile import BottleneckReport, PerformanceState, Profile
from db.records import CONFIRM, Evaluation, LatencyKind, Lineage, Outcome, PrecisionClass

STATE = "memory_latency/-/long_scoreboard/row/sm_90"


def child(n: int, parents: Sequence[int], latency_us: float | None, **lineage: object) -> Evaluation:
    """Candidate `n`, made from other candidates by some technique."""
    more = {
        key: lineage.pop(key)
        for key in ("of", "run_id", "kind", "precision", "hardware_id", "island", "source")
        if key in lineage
    }
    made = evaluation(n, latency_us=latency_us, **more)  # type: ignore[arg-type]
    said = {"operator": "retune", "technique": "tile_size", "state": STATE, "detail": "BLOCK of k 64 -> 128"}
    words = Lineage(parents=tuple(program_of(p) for p in parents), **{**said, **lineage})  # type: ignore[arg-type]
    return made.model_copy(update={"candidate": made.candidate.model_copy(update={"lineage": words})})


def seed(n: int, latency_us: float, **more: object) -> Evaluation:
    return child(n, [], latency_us, operator="seed", technique="", state="", detail="", **more)


def test_gains_failures_and_predictions_are_summed(tmp_path: Path) -> None:
    tried = [
        child(1, [0], 50.0, predicted_octaves=0.5),
        child(2, [0], 200.0),
        child(3, [0], 100.5),
        child(4, [0], None, predicted_octaves=0.25),
        child(5, [0], 1.0),
    ]
    with filled(tmp_path / "a.duckdb", [seed(0, 100.0), *tried]) as archive:
        (found,) = archive.knowledge()
    assert (found.technique, found.state, found.move, found.previous) == ("tile_size", STATE, "tile x2", "")
    assert (found.n_tried, found.n_passed, found.n_kept, found.n_improved) == (5, 4, 3, 2)
    slight = math.log2(100 / 100.5)
    assert found.octaves == pytest.approx(1 - 1 + slight + 2)  # the last is cut at two octaves
    assert found.squared_octaves == pytest.approx(1 + 1 + slight**2 + 4)
    assert found.gained_octaves == 3
    assert (found.n_predicted, found.predicted_octaves, found.predicted_gain) == (2, 0.75, 1)
    assert found.squared_error == pytest.approx(0.5**2 + 0.25**2)
    assert found.last_at_s == pytest.approx(max(e.created_at for e in tried))
    assert (found.latency_kind, found.hardware_id) == (LatencyKind.MEASURED, "nvidia-h200")


def test_states_moves_and_what_came_before_have_records_of_their_own(tmp_path: Path) -> None:
    tried = [
        seed(0, 100.0),
        child(1, [0], 90.0),
        child(2, [1], 80.0, technique="num_warps", detail="num_warps of k 4 -> 8"),
        child(3, [1], 80.0, technique="num_warps", detail="num_warps of other 2 -> 8"),
        child(4, [1], 80.0, technique="num_warps", detail="num_warps of k 4 -> 8", state=""),
    ]
    with filled(tmp_path / "a.duckdb", tried) as archive:
        found = {(e.technique, e.state, e.move, e.previous): e.n_tried for e in archive.knowledge()}
    assert found == {
        ("tile_size", STATE, "tile x2", ""): 1,
        ("num_warps", STATE, "num_warps 8", "tile_size"): 2,
        ("num_warps", "", "num_warps 8", "tile_size"): 1,
    }


def test_what_says_nothing_about_a_technique_is_left_out(tmp_path: Path) -> None:
    """Seeds, second looks, repeats, what nobody could judge, and what has no known parent."""
    repeat = child(2, [0], 50.0)
    unknown = child(3, [0], None)
    unknown = unknown.model_copy(
        update={"verdict": unknown.verdict.model_copy(update={"outcome": Outcome.UNSUPPORTED, "gates": ()})}
    )
    judged = [
        seed(0, 100.0),
        child(1, [0], 100.0, operator=CONFIRM, technique=""),
        repeat.model_copy(update={"verdict": repeat.verdict.model_copy(update={"duplicate_of": program_of(0)})}),
        unknown,
        child(4, [77], 50.0),
    ]
    with filled(tmp_path / "a.duckdb", judged) as archive:
        assert archive.knowledge() == []


def test_a_second_look_does_not_change_what_a_parent_took(tmp_path: Path) -> None:
    """The gain is over what was known when the child was judged: the parent's first latency."""
    again = child(9, [0], 400.0, operator=CONFIRM, technique="", source=seed(0, 1.0).candidate.source)
    with filled(tmp_path / "a.duckdb", [seed(0, 100.0), child(1, [0], 50.0), again]) as archive:
        (found,) = archive.knowledge()
    assert found.octaves == 1


def test_children_of_migrants_are_compared_with_them(tmp_path: Path) -> None:
    abroad = child(1, [0], 200.0, island=3)
    with filled(tmp_path / "a.duckdb", [seed(0, 100.0, island=5), abroad]) as archive:
        (found,) = archive.knowledge()
    assert found.octaves == -1


def test_kinds_and_gpus_are_never_summed(tmp_path: Path) -> None:
    """Also of failed programs, which have no latency: their run says what it would have been."""
    modelled = {"run_id": "r2", "kind": LatencyKind.MODELLED}
    judged = [
        *(seed(0, 100.0), child(1, [0], 50.0), child(2, [0], None)),
        *(seed(0, 100.0, **modelled), child(1, [0], 50.0, **modelled), child(2, [0], None, **modelled)),
        child(3, [0], 50.0, hardware_id="nvidia-a100"),
    ]
    with filled(tmp_path / "a.duckdb", []) as archive:
        archive.add_run(run("r2", latency_kind=LatencyKind.MODELLED))
        archive.insert(judged)
        found = archive.knowledge()
    assert {(e.latency_kind, e.hardware_id): e.n_tried for e in found} == {
        (LatencyKind.MEASURED, "nvidia-h200"): 2,
        (LatencyKind.MODELLED, "nvidia-h200"): 2,
        (LatencyKind.MEASURED, "nvidia-a100"): 1,
    }


def test_a_program_of_the_wrong_precision_gained_nothing(tmp_path: Path) -> None:
    judged = [seed(0, 100.0), child(1, [0], 50.0, precision=PrecisionClass.RELAXED)]
    with filled(tmp_path / "a.duckdb", judged) as archive:
        (found,) = archive.knowledge()
    assert (found.n_tried, found.n_passed, found.gained_octaves) == (1, 0, 0)


def test_problems_and_moments_are_chosen(tmp_path: Path) -> None:
    other = problem("matmul")
    judged = [seed(0, 100.0), child(1, [0], 50.0), seed(0, 100.0, of=other, run_id="r2")]
    judged += [child(n, [0], 50.0, of=other, run_id="r2") for n in (1, 2)]
    late = judged[-1].model_copy(update={"created_at": judged[0].created_at + 1000})
    with filled(tmp_path / "a.duckdb", []) as archive:
        archive.add_problem(other)
        archive.add_run(run("r2", of=other))
        archive.insert([*judged[:-1], late])

        def n(**asked: object) -> int:
            return sum(e.n_tried for e in archive.knowledge(**asked))  # type: ignore[arg-type]

        assert n() == 3
        assert n(problems=["matmul"]) == n(problems=[other.problem_id]) == n(without=["softmax"]) == 2
        assert n(without=["matmul"]) == n(problems=["softmax", "unknown"]) == 1
        assert n(until_s=judged[0].created_at + 500) == 2
        assert n(problems=[]) == 0


def evidence(technique: str = "tile_size", **sums: object) -> TechniqueEvidence:
    return TechniqueEvidence.model_validate(
        {
            "technique": technique,
            "latency_kind": "measured",
            "hardware_id": "nvidia-h200",
            **{"n_tried": 4, "n_passed": 3, "n_kept": 2, "n_improved": 1, "octaves": 0.5, "last_at_s": 5.0},
            **sums,
        }
    )


def test_imports_are_added_and_replace_what_came_from_the_same_place(tmp_path: Path) -> None:
    own = [seed(0, 100.0), child(1, [0], 50.0, state="", detail="")]
    with filled(tmp_path / "a.duckdb", own) as archive:
        archive.import_knowledge([evidence(), evidence("exp2")], "one.json")
        archive.import_knowledge([evidence()], "one.json")
        archive.import_knowledge([evidence(last_at_s=7.0)], "other.json")
        (found,) = archive.knowledge()
        assert (found.n_tried, found.n_improved, found.octaves) == (9, 3, 2.0)
        assert sum(e.n_tried for e in archive.knowledge(with_imported=False)) == 1
        archive.import_knowledge([], "one.json")
        assert sum(e.n_tried for e in archive.knowledge()) == 5


def test_it_is_answered_from_outside_while_the_owner_writes(tmp_path: Path) -> None:
    with filled(tmp_path / "a.duckdb", [seed(0, 100.0), child(1, [0], 50.0)]) as archive:
        server = ArchiveServer(archive)
        try:
            with LiveArchive(archive.path) as live:
                assert live.knowledge() == archive.knowledge() != []
        finally:
            server.close()
    with open_for_reading(tmp_path / "a.duckdb") as reader:
        assert len(reader.knowledge()) == 1


def test_sums_add_up() -> None:
    total = added(evidence(), evidence(last_at_s=3.0))
    assert (total.n_tried, total.octaves, total.last_at_s) == (8, 1.0, 5.0)
    assert len(summed([evidence(), evidence("exp2"), evidence()])) == 2
    with pytest.raises(ValidationError, match="must not grow"):
        evidence(n_improved=3)


def multiplied(path: Path, n: int) -> None:
    """Makes `n` runs of each that the archive holds, with other techniques, states and details."""
    replaced = {
        "seq": "seq + 1000 * k",
        "candidate_id": "candidate_id || '-' || k",
        "run_id": "run_id || k",
        "technique": "'technique' || (hash(seq, k) % 30)",
        "parent_state": "'memory_latency/-/s' || (hash(k) % 12) || '/row/sm_90'",
        "latency_us": "latency_us * (1 + (hash(seq) % 7) / 10)",
        "predicted_octaves": "0.1",
        "lineage": "json_object('operator', operator, 'detail',"
        " 'BLOCK of k' || (hash(k) % 9) || ' ' || (1 << (hash(seq, k) % 6)) || ' -> ' || (1 << (hash(k, seq) % 3)))",
    }
    with duckdb.connect(str(path)) as connection:
        about = connection.execute(
            "SELECT column_name FROM duckdb_columns() WHERE table_name = 'evaluations'"
        ).fetchall()
        columns = [name for (name,) in about if name != "created_at"]
        chosen = ", ".join(replaced.get(name, name) for name in columns)
        connection.execute(
            f"INSERT INTO evaluations ({', '.join(columns)}) SELECT {chosen} FROM evaluations, range(1, {n}) AS t(k)"
        )


@pytest.mark.slow
def test_a_hundred_thousand_evaluations_are_summed_in_about_a_second(tmp_path: Path) -> None:
    """0.7 s on one core of 2.1 GHz; the bound leaves room for a busy machine."""
    path = tmp_path / "a.duckdb"
    filled(path, [seed(0, 100.0), *(child(n, [n // 2], 90.0) for n in range(1, 1000))]).close()
    multiplied(path, 100)
    with ProgramArchive.open(path, read_only=True) as archive:
        started = time.perf_counter()
        found = archive.knowledge()
        seconds = time.perf_counter() - started
    assert sum(e.n_tried for e in found) == 100 * 999
    assert len({e.state for e in found}) == 13
    assert seconds < 3


# --------------------------------------------------------------------------------------------------- states and schema


def test_an_archive_of_the_first_schema_is_brought_up_to_date(tmp_path: Path) -> None:
    """Rows that know no state are kept, and count as evidence without one."""
    filled(tmp_path / "new.duckdb", [seed(0, 100.0), child(1, [0], 50.0)]).close()
    with duckdb.connect(str(tmp_path / "old.duckdb")) as old:
        migrate(old, load_steps()[:1])
        old.execute(f"ATTACH '{tmp_path / 'new.duckdb'}' AS new (READ_ONLY)")
        for table in ("problems", "runs", "evaluations"):
            sql = f"SELECT column_name FROM duckdb_columns() WHERE table_name = '{table}' AND database_name = 'old'"
            columns = ", ".join(name for (name,) in old.execute(sql).fetchall() if name != "created_at")
            if table == "problems":
                columns += ", created_at"
            old.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM new.{table}")
    with ProgramArchive.open(tmp_path / "old.duckdb") as archive:
        (found,) = archive.knowledge()
        assert (found.technique, found.state, found.octaves) == ("tile_size", "", 1)
        assert len(archive.elites(problem="softmax")) == 2
        archive.insert([child(2, [0], 25.0)])
        assert [(e.state, e.octaves) for e in archive.knowledge()] == [("", 1), (STATE, 2)]


def test_counters_that_come_later_move_a_program_to_another_cell(tmp_path: Path) -> None:
    judged = evaluation(1, latency_us=50.0)
    state = PerformanceState.parse(STATE)
    report = BottleneckReport(tier=Tier.NEAR_OPTIMAL, source="ncu", state=state, limit="loads that nothing hides")
    profile = Profile(source="ncu", compute_sol_pct=10, memory_sol_pct=91)
    counted = judged.verdict.model_copy(update={"profile": profile, "tier": Tier.NEAR_OPTIMAL, "bottleneck": report})
    with filled(tmp_path / "a.duckdb", [evaluation(0, latency_us=60.0), judged]) as archive:
        archive.reprofile([counted, counted.model_copy(update={"candidate_id": "unknown"})])
        tiers = {e.verdict.program_id: e.verdict.tier for e in archive.elites(problem="softmax")}
        assert tiers == {program_of(0): Tier.MEMORY_BOUND, program_of(1): Tier.NEAR_OPTIMAL}
        (stored,) = archive.evaluations_of(program_of(1))
        assert stored.verdict == counted and stored.verdict.captures == judged.verdict.captures
        rows = archive.query("SELECT profile_source, state, memory_sol_pct FROM evaluations ORDER BY seq").rows
        assert rows == [("compiled", None, 70.0), ("ncu", STATE, 91.0)]
