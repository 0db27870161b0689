"""The contract of reading an archive, held by all three ways to it: its owner, a read-only opening, and the socket."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from archive_records import evaluation, filled, problem, program_of, run

from db.archive import ProgramArchive
from db.errors import NotFoundError, QueryError
from db.live import ArchiveServer, LiveArchive
from db.measures import Tier
from db.reading import ArchiveReader
from db.records import Evaluation, LatencyKind, PrecisionClass, RunStatus

OTHER = problem("layer_norm")
LARGER = problem("softmax", n=8192)  # the same name, another question

EVALUATIONS = [
    evaluation(0, latency_us=390.0),
    evaluation(1, latency_us=200.0, parents=(program_of(0),)),
    evaluation(2, latency_us=None, parents=(program_of(1),)),
    evaluation(3, latency_us=100.0, parents=(program_of(1), program_of(0))),
    evaluation(4, latency_us=101.0, parents=(program_of(3),)),  # the cell of 3
    evaluation(5, latency_us=100.5, tier=Tier.COMPUTE_BOUND, island=1, parents=(program_of(4), "0" * 16)),
    evaluation(6, latency_us=50.0, precision=PrecisionClass.RELAXED),
    evaluation(7, latency_us=10.0, kind=LatencyKind.MODELLED, run_id="r2"),
    evaluation(8, latency_us=20.0, hardware_id="nvidia-h100"),
    evaluation(9, latency_us=30.0, of=OTHER),
]


@pytest.fixture(scope="module", params=["owner", "read-only", "live"])
def archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArchiveReader]:
    owner = filled(tmp_path_factory.mktemp("archive") / "a.duckdb", EVALUATIONS)
    owner.add_problem(OTHER)
    owner.add_run(run("r2", latency_kind=LatencyKind.MODELLED, status=RunStatus.INTERRUPTED, started_at=1.5))
    if request.param == "read-only":
        owner.close()
        with ProgramArchive.open(owner.path, read_only=True) as reader:
            yield reader
        return
    with owner:
        if request.param == "owner":
            yield owner
            return
        server = ArchiveServer(owner)
        with LiveArchive(owner.path) as live:
            yield live
        server.close()


def ids(archive: ArchiveReader, **scope: object) -> list[int]:
    """The numbers of the evaluations that `elites` finds."""
    return [int(e.verdict.candidate_id[-6:]) for e in archive.elites(**scope)]  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------------------------- elites


def test_a_cell_keeps_its_fastest(archive: ArchiveReader) -> None:
    assert ids(archive, hardware_id="nvidia-h200", problem="softmax", precision="reference", run_id="r1") == [
        3,
        5,
        1,
        0,
    ]


def test_grids_do_not_mix(archive: ArchiveReader) -> None:
    assert ids(archive) == [7, 8, 9, 6, 3, 5, 1, 0]
    assert ids(archive, latency_kind=LatencyKind.MODELLED) == [7]
    assert ids(archive, precision=PrecisionClass.RELAXED) == [6]
    assert ids(archive, hardware_id="nvidia-h100") == [8]
    assert ids(archive, problem="layer_norm") == ids(archive, problem=OTHER.problem_id) == [9]
    assert ids(archive, run_id="r2") == [7]
    assert ids(archive, limit=3) == [7, 8, 9]
    assert ids(archive, problem="nothing") == [] == ids(archive, run_id="nothing")


def test_an_elite_says_what_it_is(archive: ArchiveReader) -> None:
    elite = archive.elites(problem="layer_norm")[0]
    assert elite.verdict == EVALUATIONS[9].verdict.model_copy(update={"captures": ()})
    assert elite.lineage == EVALUATIONS[9].candidate.lineage
    assert elite.program.source == EVALUATIONS[9].candidate.source
    assert elite.program.problem_id == OTHER.problem_id
    assert (elite.problem_name, elite.run_id, elite.island) == ("layer_norm", "r1", 0)


def test_the_view_is_the_method(archive: ArchiveReader) -> None:
    table = archive.query("SELECT candidate_id, problem FROM elites ORDER BY rank_us")
    assert [(int(candidate[-6:]), name) for candidate, name in table.rows] == [
        (n, "layer_norm" if n == 9 else "softmax") for n in ids(archive)
    ]


def test_best(archive: ArchiveReader) -> None:
    def best(name: str, **scope: object) -> str:
        elite = archive.best(name, **scope)  # type: ignore[arg-type]
        return elite.verdict.candidate_id if elite else ""

    # measured before modelled, reference before relaxed, then the grid that was judged last: the one of the H100
    assert best("softmax") == "r1-0-000008"
    assert best("softmax", hardware_id="nvidia-h200") == "r1-0-000003"
    assert best("softmax", latency_kind=LatencyKind.MODELLED) == "r2-0-000007"
    assert best("softmax", precision=PrecisionClass.RELAXED) == "r1-0-000006"
    assert best("softmax", run_id="r2") == "r2-0-000007"
    assert best(OTHER.problem_id) == "r1-0-000009"
    assert best("nothing") == ""


def test_parents_are_elites_and_follow_the_draw(archive: ArchiveReader) -> None:
    def sample(draw: int, n: int = 2) -> list[str]:
        return [e.verdict.candidate_id for e in archive.sample_parents("softmax", n, draw, run_id="r1", island=0)]

    elites = {"r1-0-000000", "r1-0-000001", "r1-0-000003", "r1-0-000006", "r1-0-000008"}
    assert sample(1) == sample(1) and len(set(sample(1))) == 2
    assert set(sample(0, n=9)) == elites
    assert {c for draw in range(40) for c in sample(draw)} == elites
    firsts = [sample(draw, n=1)[0] for draw in range(60)]
    assert firsts.count("r1-0-000008") > firsts.count("r1-0-000000")  # 20 times faster than the baseline against 1


# ---------------------------------------------------------------------------------------------- programs and lineage


def test_program_by_prefix(archive: ArchiveReader) -> None:
    program = archive.program(program_of(3)[:9])
    assert (program.program_id, program.source) == (program_of(3), EVALUATIONS[3].candidate.source)
    for nothing in ("nothing", ""):
        with pytest.raises(NotFoundError, match="no program"):
            archive.program(nothing)


def test_an_ambiguous_prefix_lists_its_matches(archive: ArchiveReader) -> None:
    all_ids = sorted({program_of(n) for n in range(10)})
    prefix = next(a[:1] for a, b in itertools.pairwise(all_ids) if a[0] == b[0])
    with pytest.raises(NotFoundError, match="ambiguous") as caught:
        archive.program(prefix)
    assert all(i in caught.value.message for i in all_ids if i.startswith(prefix))
    assert "more digits" in caught.value.hint


def test_lineage_is_oldest_first(archive: ArchiveReader) -> None:
    rows = archive.lineage(program_of(5)[:10])
    assert [row.program_id for row in rows] == [program_of(n) for n in (0, 1, 3, 4, 5)]
    assert [row.generation for row in rows] == [0, 1, 2, 3, 4]
    last = rows[-1]
    assert (last.parents, last.technique, last.detail) == ((program_of(4), "0" * 16), "num_warps", "step 5")
    assert (last.latency_us, last.speedup, last.latency_kind, last.island) == (100.5, 400 / 100.5, "measured", 1)
    failed = archive.lineage(program_of(2))[-1]
    assert (failed.outcome, failed.latency_us, failed.reason) == ("failed", None, "element 3 differs")


def test_evaluations_in_order(archive: ArchiveReader) -> None:
    assert archive.evaluations("r1") == [e for e in EVALUATIONS if e.candidate.run_id == "r1"]
    assert archive.evaluations("r1", island=1) == [EVALUATIONS[5]]
    assert archive.evaluations("nothing") == []
    assert archive.evaluations_of(program_of(2)) == [EVALUATIONS[2]]


# ----------------------------------------------------------------------------------------------- runs and problems


def test_runs(archive: ArchiveReader) -> None:
    assert [r.run_id for r in archive.runs()] == ["r2", "r1"]
    assert archive.run("r1") == run()
    unfinished = archive.last_unfinished_run()
    assert unfinished is not None and unfinished.run_id == "r2"  # added last, by a clock that had jumped back
    with pytest.raises(NotFoundError, match="no run 'r9'") as caught:
        archive.run("r9")
    assert caught.value.hint


def test_problems(archive: ArchiveReader) -> None:
    assert archive.problems() == [problem(), OTHER]
    assert archive.problem("layer_norm") == archive.problem(OTHER.problem_id) == OTHER
    with pytest.raises(NotFoundError, match="no problem 'softmaks'") as caught:
        archive.problem("softmaks")
    assert "softmax" in caught.value.hint


def test_a_name_means_the_problem_that_got_it_last(tmp_path: Path) -> None:
    with filled(tmp_path / "b.duckdb", []) as archive:
        archive.add_problem(LARGER)
        assert archive.problem("softmax") == LARGER
        assert archive.problem(problem().problem_id) == problem()


# ------------------------------------------------------------------------------------------------------- duplicates

ASKED = (problem().problem_id, "nvidia-h200")


def test_known_work(archive: ArchiveReader) -> None:
    assert archive.known_fingerprint(*ASKED, PrecisionClass.REFERENCE, "fp-3") == EVALUATIONS[3].verdict
    assert archive.known_program(*ASKED, PrecisionClass.REFERENCE, program_of(3)) == EVALUATIONS[3].verdict
    assert archive.known_fingerprint(*ASKED, PrecisionClass.REFERENCE, "fp-77") is None
    assert archive.known_fingerprint(ASKED[0], "nvidia-h100", PrecisionClass.REFERENCE, "fp-3") is None
    assert archive.known_fingerprint(OTHER.problem_id, ASKED[1], PrecisionClass.REFERENCE, "fp-3") is None


def test_known_work_is_of_a_run_that_asked_the_same(archive: ArchiveReader) -> None:
    # a failed verdict has no kind of its own: the run's counts
    assert archive.known_fingerprint(*ASKED, PrecisionClass.REFERENCE, "fp-2", LatencyKind.MEASURED) is not None
    assert archive.known_fingerprint(*ASKED, PrecisionClass.REFERENCE, "fp-2", LatencyKind.MODELLED) is None
    assert archive.known_fingerprint(*ASKED, PrecisionClass.RELAXED, "fp-2") is None
    assert archive.known_fingerprint(*ASKED, PrecisionClass.REFERENCE, "fp-7", LatencyKind.MODELLED) is not None


def test_a_duplicate_is_not_quoted(tmp_path: Path) -> None:
    copied = evaluation(5, duplicate_of=program_of(9), fingerprint="same")
    latest = evaluation(4, fingerprint="same")
    unmarked = evaluation(3, fingerprint="")
    with filled(tmp_path / "b.duckdb", [evaluation(2, fingerprint="same"), latest, copied, unmarked]) as archive:
        assert archive.known_fingerprint(*ASKED, PrecisionClass.REFERENCE, "same") == latest.verdict
        assert archive.known_fingerprint(*ASKED, PrecisionClass.REFERENCE, "") is None


# -------------------------------------------------------------------------------------------------------------- SQL


def test_query(archive: ArchiveReader) -> None:
    table = archive.query(
        "SELECT outcome, count(*) AS n FROM evaluations WHERE run_id = ? GROUP BY 1 ORDER BY 1", ["r1"]
    )
    assert table.columns == ["outcome", "n"] and table.rows == [("correct", 8), ("failed", 1)]
    assert archive.query("SELECT 1 WHERE false").rows == []
    assert archive.query("SELECT verdict ->> '$.seconds.prepare' AS s FROM evaluations LIMIT 1").rows == [("0.5",)]
    assert "Projection" in archive.query("EXPLAIN SELECT 1").rows[0][1].title()


def test_values_are_what_json_can_say(archive: ArchiveReader) -> None:
    sql = (
        "SELECT timestamp '2020-01-02 03:04:05', 1.50::DECIMAL(5, 2), ['a', NULL], {'k': [1]}, 'nan'::DOUBLE,"
        " 'ab'::BLOB, NULL, true, 123456789012345678901234567890::HUGEINT, 0.1, interval 1 day"
    )
    row = archive.query(sql).rows[0]
    expected = (
        "2020-01-02 03:04:05", 1.5, ["a", None], {"k": [1]}, "nan", "6162", None, True,
        123456789012345678901234567890, 0.1, "1 day, 0:00:00",
    )  # fmt: skip
    assert row == expected
    assert json.loads(json.dumps(row)) == list(expected)


def test_a_large_answer_is_whole(archive: ArchiveReader) -> None:
    table = archive.query("SELECT range, repeat('x', 1000) FROM range(3500)")
    assert [row[0] for row in table.rows] == list(range(3500))


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO runs SELECT * FROM runs",
        "DELETE FROM evaluations",
        "WITH gone AS (DELETE FROM evaluations RETURNING 1) SELECT * FROM gone",
        "SELECT 1; DELETE FROM evaluations",
        "DROP TABLE evaluations",
        "CREATE TABLE t (a INTEGER)",
        "COPY runs TO '/tmp/never.parquet'",
        "ATTACH ':memory:' AS other",
        "SET threads = 1",
        "PRAGMA force_checkpoint",
        "CHECKPOINT",
        "BEGIN",
        "",
        "SELEC 1",
        "SELECT * FROM nothing",
        "SELECT ?",
        "SELECT 'x'::INTEGER",
    ],
)
def test_what_is_no_question_is_refused(archive: ArchiveReader, sql: str) -> None:
    with pytest.raises(QueryError) as caught:
        archive.query(sql)
    assert caught.value.hint and "\n" not in caught.value.message
    assert archive.query("SELECT count(*) FROM evaluations").rows == [(len(EVALUATIONS),)]


def test_a_name_that_is_nearly_right_is_told(archive: ArchiveReader) -> None:
    for sql, near in (("SELECT tecnique FROM evaluations", '"technique"'), ("SELECT * FROM evals", '"evaluations"')):
        with pytest.raises(QueryError) as caught:
            archive.query(sql)
        assert near in caught.value.hint and "LINE 1" not in caught.value.hint


# ----------------------------------------------------------------------------------------------------------- export


@pytest.mark.parametrize("file_format", ["parquet", "jsonl"])
def test_export_of_everything(archive: ArchiveReader, tmp_path: Path, file_format: str) -> None:
    files = archive.export(tmp_path / "out's", file_format)  # type: ignore[arg-type]
    counts = {file.stem: n_rows(file) for file in files}
    told = {"llm_calls": 0, "llm_questions": 0, "lessons": 0, "explanations": 0, "learnt_techniques": 0, "opinions": 0}
    assert counts == {"runs": 2, "problems": 2, "programs": 10, "evaluations": 10, "elites": 8, **told}


def test_export_of_one_run_to_one_file(archive: ArchiveReader, tmp_path: Path) -> None:
    (file,) = archive.export(tmp_path / "one.jsonl", "jsonl", run_id="r2")
    (line,) = [json.loads(line) for line in file.read_text().splitlines()]
    assert line["candidate_id"] == "r2-0-000007" and line["source"] == EVALUATIONS[7].candidate.source
    assert line["verdict"]["latency"]["kind"] == "modelled"
    files = archive.export(tmp_path / "two", "parquet", run_id="r2")
    assert {file.stem: n_rows(file) for file in files} == {
        "runs": 1, "problems": 1, "programs": 1, "evaluations": 1, "elites": 1, "llm_calls": 0, "llm_questions": 0,
        "lessons": 0, "explanations": 0, "learnt_techniques": 0, "opinions": 0,
    }  # fmt: skip
    with pytest.raises(NotFoundError):
        archive.export(tmp_path / "three", "parquet", run_id="nothing")


def n_rows(file: Path) -> int:
    reader = "read_parquet" if file.suffix == ".parquet" else "read_json"
    with duckdb.connect() as connection:
        return int(connection.execute(f"SELECT count(*) FROM {reader}(?)", [str(file)]).fetchall()[0][0])


# -------------------------------------------------------------------------------------------------------- odd cases


def test_ties_go_to_the_shorter_source_then_to_the_earlier(tmp_path: Path) -> None:
    def tied(n: int, length: int) -> Evaluation:
        return evaluation(n, latency_us=100.0, source=f"def kernel_function(x):\n    return '{'x' * length}{n}'\n")

    with filled(tmp_path / "b.duckdb", [tied(1, 30), tied(2, 3000), tied(3, 29), tied(4, 31), tied(5, 29)]) as archive:
        assert ids(archive) == [3]
        best = archive.best("softmax")
        assert best is not None and best.verdict.candidate_id == "r1-0-000003"


def test_programs_made_from_each_other_have_a_lineage(tmp_path: Path) -> None:
    circle = [evaluation(1, parents=(program_of(2),)), evaluation(2, parents=(program_of(1), program_of(2)))]
    with filled(tmp_path / "b.duckdb", circle) as archive:
        assert [row.program_id for row in archive.lineage(program_of(2))] == [program_of(1), program_of(2)]


def test_parents_abroad_are_those_of_other_islands_as_first_judged(tmp_path: Path) -> None:
    seed, migrant, unused = evaluation(0), evaluation(1, island=1, latency_us=80.0), evaluation(2, island=1)
    again = evaluation(7, island=2, source=migrant.candidate.source, latency_us=70.0)
    child = evaluation(3, parents=(program_of(1), program_of(0)))
    failed = evaluation(4, island=1, latency_us=None)
    other_run = evaluation(5, island=1, run_id="r2")
    late = evaluation(6, parents=(program_of(4), program_of(5)))
    with ProgramArchive.open(tmp_path / "a.duckdb") as archive:
        archive.insert([seed, migrant, unused, again, child, failed, other_run, late])
        assert archive.parents_abroad("r1", 0) == [migrant]
        assert archive.parents_abroad("r1", 1) == []
