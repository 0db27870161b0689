"""Writing an archive: once, whole, in order, and durable."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from archive_records import capture, evaluation, problem, program_of, run

from db.archive import ProgramArchive
from db.errors import ArchiveError, NotFoundError
from db.measures import TIERS, MeasureSpace
from db.records import CONFIRM, Evaluation, LatencyKind, PrecisionClass, RunStatus
from db.rows import COLUMNS, row_of


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[ProgramArchive]:
    with ProgramArchive.open(tmp_path / "a.duckdb") as archive:
        archive.add_problem(problem())
        archive.add_run(run())
        yield archive


def n_stored(archive: ProgramArchive) -> int:
    return int(archive.query("SELECT count(*) FROM evaluations").rows[0][0])


def test_an_insert_may_be_repeated(archive: ProgramArchive) -> None:
    assert archive.insert([evaluation(1), evaluation(2)]) == 2
    assert archive.insert([evaluation(2), evaluation(3, latency_us=None)]) == 1
    assert archive.insert([evaluation(1), evaluation(2)]) == 0
    assert archive.insert([]) == 0
    assert n_stored(archive) == 3
    assert archive.insert_new([evaluation(3), evaluation(4)]) == {"r1-0-000004"}


def test_the_first_of_two_with_one_id_stays(archive: ProgramArchive) -> None:
    first, second = evaluation(1, latency_us=50), evaluation(1, latency_us=70)
    assert archive.insert([first, second]) == 1
    assert archive.insert([second]) == 0
    assert archive.evaluations("r1") == [first]


def test_what_comes_out_is_what_went_in(tmp_path: Path) -> None:
    everything = [
        evaluation(1, parents=("p", "q")),
        evaluation(2, latency_us=None),
        evaluation(3, kind=LatencyKind.MODELLED, precision=PrecisionClass.RELAXED),
        evaluation(4, source="def kernel_function(x):\n    '''é \N{ROCKET} \0 \"'''\n    return x\n"),
        evaluation(5, source="def ("),
        evaluation(6, island=7, duplicate_of=program_of(1)),
    ]
    with ProgramArchive.open(tmp_path / "a.duckdb") as archive:
        archive.insert(everything)
        assert archive.evaluations("r1") == everything
    with ProgramArchive.open(tmp_path / "a.duckdb") as archive:
        assert archive.evaluations("r1") == everything


def test_order_of_insertion_goes_on_after_reopening(tmp_path: Path) -> None:
    shuffled = [3, 1, 2, 9, 5, 4]
    for n in shuffled:
        with ProgramArchive.open(tmp_path / "a.duckdb") as archive:
            archive.insert([evaluation(n)])
            archive.insert([evaluation(n + 10), evaluation(n + 20)])
    with ProgramArchive.open(tmp_path / "a.duckdb") as archive:
        found = [e.candidate.candidate_id for e in archive.evaluations("r1")]
    assert found == [f"r1-0-{k:06d}" for n in shuffled for k in (n, n + 10, n + 20)]


def test_a_program_has_one_row_and_every_spelling_is_kept(archive: ProgramArchive) -> None:
    one = evaluation(1)
    spelt = evaluation(2, source=one.candidate.source + "# the same\n")
    archive.insert([one, spelt])
    assert archive.query("SELECT program_id, source FROM programs").rows == [(program_of(1), one.candidate.source)]
    assert archive.evaluations("r1")[1].candidate.source == spelt.candidate.source


def test_rows_are_as_wide_as_the_table(archive: ProgramArchive) -> None:
    for e in (evaluation(1), evaluation(2, latency_us=None)):
        assert len(row_of(e, 1)) == len(COLUMNS)
    in_table = {row[0] for row in archive.query("DESCRIBE evaluations").rows}
    assert in_table == set(COLUMNS) | {"created_at"}


def test_a_row_holds_records_as_they_write_themselves() -> None:
    one = evaluation(1, parents=("p",))
    launch = capture().launches[0].model_copy(update={"constexprs": {"LIMIT": -math.inf}, "occupancy": math.inf})
    captures = (capture(), capture().model_copy(update={"launches": (launch,)}))
    verdict = one.verdict.model_copy(update={"captures": captures, "seconds": {"prepare": math.inf}})
    row = dict(zip(COLUMNS, row_of(one.model_copy(update={"verdict": verdict}), 1), strict=True))
    assert row["lineage"] == one.candidate.lineage.model_dump_json()
    assert row["verdict"] == verdict.model_dump_json(exclude={"captures"})
    assert row["captures"] == f"[{','.join(each.model_dump_json() for each in captures)}]"


def test_cells_are_numbered_without_overlap() -> None:
    space, index = MeasureSpace(), list(COLUMNS).index("cell")
    latencies = [1e-9, 0.2, 1.0, 77.0, 1e9]
    cells = {row_of(evaluation(latency_us=us, tier=tier), 1)[index] for us in latencies for tier in TIERS}
    assert len(cells) == len(latencies) * len(TIERS)
    assert all(0 <= cell < space.n_cells for cell in cells)


def test_a_run_is_updated(archive: ProgramArchive) -> None:
    done = run().model_copy(
        update={"status": RunStatus.FINISHED, "finished_at": 1_700_000_100.5, "stop_reason": "budget"}
    )
    archive.update_run(done)
    assert archive.run("r1") == done
    columns = "SELECT status, stop_reason, started_at, finished_at FROM runs"
    row = ("finished", "budget", "2023-11-14 22:13:20.250000", "2023-11-14 22:15:00.500000")
    assert archive.query(columns).rows == [row]
    assert archive.last_unfinished_run() is None
    with pytest.raises(NotFoundError):
        archive.update_run(run("nobody"))


def test_a_run_is_added_once(archive: ProgramArchive) -> None:
    archive.add_run(run())
    assert len(archive.runs()) == 1
    with pytest.raises(ArchiveError, match="another run r1"):
        archive.add_run(run(started_at=5.0))


def test_a_problem_is_added_once(archive: ProgramArchive) -> None:
    archive.add_problem(problem())
    assert archive.problems() == [problem()]


def test_many_threads_insert_and_read(archive: ProgramArchive) -> None:
    counts: list[int] = []
    errors: list[BaseException] = []

    def work(island: int) -> None:
        try:
            for n in range(5):
                counts.append(archive.insert([evaluation(n, island=island), evaluation(n + 100, island=island)]))
                assert len(archive.elites(run_id="r1")) >= 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(island,)) for island in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors and sum(counts) == n_stored(archive) == 40
    assert archive.query("SELECT count(DISTINCT seq) FROM evaluations").rows == [(40,)]


def test_a_failed_insert_leaves_nothing(archive: ProgramArchive) -> None:
    broken = evaluation(2)
    object.__setattr__(broken.candidate, "island", "seven")
    with pytest.raises(Exception, match="seven"):
        archive.insert([evaluation(1), broken])
    assert n_stored(archive) == 0
    assert archive.insert([evaluation(1)]) == 1


def test_a_question_reads_only(archive: ProgramArchive) -> None:
    archive.insert([evaluation(1)])
    with ProgramArchive.open(archive.path, read_only=True) as reader:
        for write in (lambda: reader.insert([evaluation(2)]), lambda: reader.add_problem(problem("other"))):
            with pytest.raises(ArchiveError, match="reading only"):
                write()
        assert reader.evaluations("r1") == archive.evaluations("r1")
    assert n_stored(archive) == 1


def test_time_of_an_evaluation_is_exact_and_readable(archive: ProgramArchive) -> None:
    at = Evaluation(candidate=evaluation(1).candidate, verdict=evaluation(1).verdict, created_at=1_700_000_000.123456)
    archive.insert([at])
    assert archive.query("SELECT created_at FROM evaluations").rows == [("2023-11-14 22:13:20.123456",)]
    assert archive.evaluations("r1") == [at]


def confirmation(of: Evaluation, number: int, latency_us: float | None) -> Evaluation:
    """A second judgement of the same program."""
    again = evaluation(number, latency_us=latency_us, source=of.candidate.source)
    lineage = again.candidate.lineage.model_copy(update={"operator": CONFIRM, "parents": (of.candidate.program_id,)})
    return again.model_copy(update={"candidate": again.candidate.model_copy(update={"lineage": lineage})})


def test_a_second_judgement_replaces_a_lucky_one(archive: ProgramArchive) -> None:
    lucky, steady = evaluation(1, latency_us=50), evaluation(2, latency_us=60)
    archive.insert([lucky, steady])
    assert archive.insert([confirmation(lucky, 3, latency_us=70)]) == 1
    best = archive.best(problem().problem_id)
    assert best is not None
    assert best.program.program_id == steady.candidate.program_id
    slower = [e for e in archive.elites() if e.program.program_id == lucky.candidate.program_id]
    assert [e.verdict.latency.device_us for e in slower if e.verdict.latency] == [70]
    assert n_stored(archive) == 3


def test_a_program_that_fails_its_second_judgement_holds_no_cell(archive: ProgramArchive) -> None:
    fast, steady = evaluation(1, latency_us=50), evaluation(2, latency_us=60)
    archive.insert([fast, steady])
    archive.insert([confirmation(fast, 3, latency_us=None)])
    assert {e.program.program_id for e in archive.elites()} == {steady.candidate.program_id}
