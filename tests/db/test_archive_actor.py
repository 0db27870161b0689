"""The archive's actor: one owner for a cluster, durable, restartable, readable from outside."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from archive_records import evaluation, problem, program_of, run

from db.actor import ArchiveActor
from db.archive import ProgramArchive
from db.errors import ArchiveBusyError, ArchiveError, NotFoundError, QueryError
from db.live import LiveArchive, open_for_reading
from db.records import PrecisionClass, RunStatus

pytestmark = pytest.mark.usefixtures("ray_session")
LIMIT_S = 60


def answer(call: Any) -> Any:
    return ray.get(call, timeout=LIMIT_S)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path.resolve() / "a.duckdb"


@pytest.fixture
def actor(path: Path) -> Iterator[Any]:
    actor = ArchiveActor.remote(str(path), idle_s=0.3)  # type: ignore[attr-defined]
    answer(actor.open.remote())
    answer(actor.add_problem.remote(problem()))
    answer(actor.add_run.remote(run()))
    yield actor
    ray.kill(actor)


def test_the_methods_are_those_of_the_archive(actor: Any, tmp_path: Path) -> None:
    stored = [evaluation(1), evaluation(2, latency_us=90.0, parents=(program_of(1),)), evaluation(3, latency_us=None)]
    assert answer(actor.insert.remote(stored)) == 3
    assert answer(actor.evaluations.remote("r1")) == stored
    assert answer(actor.evaluations_of.remote(program_of(2))) == [stored[1]]
    assert answer(actor.best.remote("softmax")).verdict.candidate_id == "r1-0-000002"
    elites = answer(actor.elites.remote(run_id="r1"))
    assert [e.verdict.candidate_id for e in elites] == ["r1-0-000002", "r1-0-000001"]
    asked = (problem().problem_id, "nvidia-h200", PrecisionClass.REFERENCE)
    assert answer(actor.known_fingerprint.remote(*asked, "fp-2")) == stored[1].verdict
    assert answer(actor.known_program.remote(*asked, program_of(3))) == stored[2].verdict
    assert answer(actor.parents_abroad.remote("r1", 0)) == []
    assert answer(actor.has_other_runs.remote(problem().problem_id, "nvidia-h200", "r2"))
    assert not answer(actor.has_other_runs.remote(problem().problem_id, "nvidia-h200", "r1"))
    assert answer(actor.program.remote(program_of(1)[:10])).source == stored[0].candidate.source
    assert [row.generation for row in answer(actor.lineage.remote(program_of(2)))] == [0, 1]
    assert answer(actor.problems.remote()) == [answer(actor.problem.remote("softmax"))] == [problem()]
    assert answer(actor.runs.remote()) == [answer(actor.last_unfinished_run.remote())] == [run()]
    answer(actor.update_run.remote(run(status=RunStatus.FINISHED)))
    assert answer(actor.run.remote("r1")).status is RunStatus.FINISHED
    assert answer(actor.query.remote("SELECT count(*) FROM programs WHERE true")).rows == [(3,)]


def test_inserts_at_once_are_counted_one_by_one(actor: Any) -> None:
    calls = [actor.insert.remote([evaluation(n), evaluation(n + 1)]) for n in range(0, 60, 2)]
    repeated = [actor.insert.remote([evaluation(n)]) for n in range(0, 60, 6)]
    counts, again = answer(calls), answer(repeated)  # which of two equal ones comes first is Ray's affair
    assert sum(counts) + sum(again) == 60 and set(counts) <= {1, 2} and set(again) <= {0, 1}
    assert answer(actor.insert_all.remote([[evaluation(60)], [evaluation(61), evaluation(3)], []])) == [1, 1, 0]
    assert answer(actor.query.remote("SELECT count(*), count(DISTINCT seq) FROM evaluations")).rows == [(62, 62)]


def test_one_that_cannot_be_stored_spares_the_others(actor: Any) -> None:
    broken = evaluation(500)
    object.__setattr__(broken.candidate, "island", "seven")
    calls = [actor.insert.remote([e]) for e in (evaluation(1), broken, evaluation(2))]
    assert answer(calls[0]) == answer(calls[2]) == 1
    with pytest.raises(Exception, match="seven"):
        answer(calls[1])
    assert answer(actor.insert.remote([evaluation(3)])) == 1


def test_other_processes_read_while_it_writes(actor: Any, path: Path) -> None:
    answer(actor.insert.remote([evaluation(1)]))
    reader = open_for_reading(path)
    assert isinstance(reader, LiveArchive)
    assert reader.evaluations("r1") == [evaluation(1).model_copy(update={"created_at": reader_time(reader)})]
    answer(actor.insert.remote([evaluation(2)]))
    assert len(reader.evaluations("r1")) == 2
    with pytest.raises(QueryError):
        reader.query("DELETE FROM evaluations")


def reader_time(reader: LiveArchive) -> float:
    return float(reader.query("SELECT created_s FROM evaluations ORDER BY seq LIMIT 1").rows[0][0])


def test_a_second_owner_is_told_who_holds_it(actor: Any, path: Path) -> None:
    second = ArchiveActor.remote(str(path))  # type: ignore[attr-defined]
    with pytest.raises(ArchiveBusyError) as caught:
        answer(second.open.remote())
    assert "PID" in caught.value.message and "--archive" in caught.value.hint
    ray.kill(second)
    with pytest.raises(ArchiveBusyError):
        ProgramArchive.open(path)


def test_errors_keep_their_kind(actor: Any) -> None:
    with pytest.raises(NotFoundError):
        answer(actor.run.remote("nobody"))
    with pytest.raises(QueryError) as caught:
        answer(actor.query.remote("SELEC 1"))
    assert caught.value.hint


def test_an_acknowledged_insert_survives_the_actors_death(actor: Any, path: Path) -> None:
    for n in range(5):
        answer(actor.insert.remote([evaluation(n)]))
    ray.kill(actor)
    with ProgramArchive.open(path, wait_s=30) as archive:
        assert len(archive.evaluations("r1")) == 5


def test_it_comes_back_after_kill_9(actor: Any, path: Path) -> None:
    answer(actor.insert.remote([evaluation(n) for n in range(3)]))
    ray.kill(actor, no_restart=False)
    # sent while it is dead: Ray sends it again to the new process, which opens the file for it
    assert answer(actor.insert.remote([evaluation(3), evaluation(2)])) == 1
    assert len(answer(actor.evaluations.remote("r1"))) == 4
    assert isinstance(open_for_reading(path, wait_s=30), LiveArchive)


def test_the_log_is_emptied_when_nothing_comes(actor: Any, path: Path) -> None:
    answer(actor.insert.remote([evaluation(n) for n in range(20)]))
    log = path.with_name(path.name + ".wal")
    deadline = time.monotonic() + 20
    while log.exists() and log.stat().st_size > 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not log.exists() or log.stat().st_size == 0
    assert answer(actor.insert.remote([evaluation(100)])) == 1


def test_close_lets_go(actor: Any, path: Path) -> None:
    waiting = [actor.insert.remote([evaluation(n)]) for n in range(10)]
    answer(waiting)
    answer(actor.close.remote())
    assert [entry.name for entry in path.parent.iterdir()] == ["a.duckdb"]
    with ProgramArchive.open(path) as archive:
        assert len(archive.evaluations("r1")) == 10
    assert len(answer(actor.evaluations.remote("r1"))) == 10  # opens it again


def test_a_relative_path_is_refused() -> None:
    actor = ArchiveActor.remote("a.duckdb")  # type: ignore[attr-defined]
    with pytest.raises(ray.exceptions.RayActorError, match="must be absolute"):
        answer(actor.open.remote())


def test_an_archive_that_cannot_be_opened_is_an_archive_error(tmp_path: Path) -> None:
    (tmp_path / "a.duckdb").write_text("junk" * 5000)
    actor = ArchiveActor.remote(str(tmp_path / "a.duckdb"))  # type: ignore[attr-defined]
    for _ in range(2):
        with pytest.raises(ArchiveError, match="no archive") as caught:
            answer(actor.open.remote())
        assert caught.value.hint
    ray.kill(actor)
