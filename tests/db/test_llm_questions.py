"""Questions that wait for somebody to carry them: kept whole, answered once, closed with what came of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from archive_records import evaluation, filled, run
from test_llm_calls import call

from db.archive import ProgramArchive
from db.errors import ArchiveError
from db.live import ArchiveServer, LiveArchive
from db.llm_questions import LlmQuestion, QuestionStatus, of_status
from db.migrations import load_steps, migrate
from db.records import RunStatus


def question(n: int, **changes: Any) -> LlmQuestion:
    values: dict[str, Any] = {
        "question_id": f"r1-q{n:05d}",
        "run_id": "r1",
        "island": n % 2,
        "dialogue_id": f"{n % 2}-0000{n}",
        "operator": "mutate",
        "model": "openai/gpt-4o",
        "prompt_hash": f"hash-{n}",
        "request": {"messages": [{"role": "user", "content": "é \u2028 'quoted'\nfaster"}], "limit_s": 900.0},
        "spec": {"provider": "openai", "name": "gpt-4o"},
        "created_at": 1_700_000_000.0 + n,
    }
    return LlmQuestion(**{**values, **changes})


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[ProgramArchive]:
    with filled(tmp_path / "a.duckdb", [evaluation(1)]) as archive:
        yield archive


def statuses(archive: ProgramArchive) -> list[str]:
    return [str(one.status) for one in archive.llm_questions("r1")]


def test_questions_and_dialogues_come_back_as_they_were(archive: ProgramArchive) -> None:
    asked = [question(n) for n in range(3)]
    archive.exchange("r1", [], list(reversed(asked)), {0: {"open": [1, "é"]}, 1: {}})
    assert archive.llm_questions("r1") == asked and archive.llm_questions("r2") == []
    assert archive.llm_dialogues("r1") == {0: {"open": [1, "é"]}, 1: {}} and archive.llm_dialogues("r2") == {}
    archive.exchange("r1", [], [], {1: {"open": []}})
    assert archive.llm_dialogues("r1") == {0: {"open": [1, "é"]}, 1: {"open": []}}


def test_a_question_is_answered_once_and_its_cost_counted_once(archive: ProgramArchive) -> None:
    archive.exchange("r1", [], [question(0), question(1)], {})
    archive.take_answers({"r1-q00000": {"text": "first"}}, [call(0)])
    archive.take_answers({"r1-q00000": {"text": "second"}, "nobody": {}}, [call(0)])
    assert statuses(archive) == ["answered", "waiting"]
    assert archive.llm_questions("r1")[0].answer == {"text": "first"} and len(archive.llm_calls()) == 1


def test_what_an_island_heard_is_closed_together_with_what_it_asks_next(archive: ProgramArchive) -> None:
    archive.exchange("r1", [], [question(0), question(1)], {0: "before"})
    archive.take_answers({"r1-q00000": {}}, [])
    with pytest.raises(duckdb.ConversionException):
        archive.exchange("r1", ["r1-q00000"], [question(2, island=2**40)], {0: "after"})
    assert statuses(archive) == ["answered", "waiting"] and archive.llm_dialogues("r1") == {0: "before"}
    archive.exchange("r1", ["r1-q00000"], [question(2)], {0: "after"})
    assert statuses(archive) == ["closed", "waiting", "waiting"] and archive.llm_dialogues("r1") == {0: "after"}
    archive.take_answers({"r1-q00000": {"text": "late"}}, [])
    assert statuses(archive)[0] == "closed"


def test_the_last_run_that_waits(archive: ProgramArchive) -> None:
    assert archive.last_waiting_run() is None
    archive.add_run(run("r8", status=RunStatus.WAITING, started_at=8e9))
    archive.add_run(run("r9", status=RunStatus.FINISHED, started_at=9e9))
    asked = [question(n, question_id=f"{name}-q", run_id=name) for n, name in enumerate(["r1", "r8", "r9"])]
    archive.exchange("r9", ["r9-q"], asked, {})
    archive.exchange("r9", ["r9-q"], [], {})
    waiting = archive.last_waiting_run()
    assert waiting is not None and waiting.run_id == "r8"
    archive.take_answers({"r8-q": {}}, [])
    assert archive.last_waiting_run() == waiting, "an answer that no island heard yet"


def test_a_run_that_waits_was_not_cut_short(archive: ProgramArchive) -> None:
    before = archive.last_unfinished_run()
    archive.add_run(run("r9", status=RunStatus.WAITING, started_at=9e9))
    assert archive.last_unfinished_run() == before


def test_they_are_read_beside_a_writer_and_exported(archive: ProgramArchive, tmp_path: Path) -> None:
    archive.exchange("r1", [], [question(0), question(1, status=QuestionStatus.CLOSED)], {0: [1]})
    server = ArchiveServer(archive)
    with LiveArchive(archive.path) as live:
        assert live.llm_questions("r1") == archive.llm_questions("r1") and live.llm_dialogues("r1") == {0: [1]}
        assert len(of_status(live.llm_questions("r1"), QuestionStatus.WAITING)) == 1
        waiting = live.last_waiting_run()
    server.close()
    assert waiting is not None and waiting.run_id == "r1"
    archive.export(tmp_path / "out", "jsonl", "r1")
    assert len((tmp_path / "out" / "llm_questions.jsonl").read_bytes().split(b"\n")) == 2 + 1


def test_an_older_archive_gets_the_tables(tmp_path: Path) -> None:
    path = tmp_path / "old.duckdb"
    with duckdb.connect(str(path)) as connection:
        migrate(connection, [step for step in load_steps() if step.version < 5])
    with ProgramArchive.open(path) as archive:
        assert archive.llm_questions("r1") == []
    with ProgramArchive.open(path, read_only=True) as archive, pytest.raises(ArchiveError, match="reading only"):
        archive.exchange("r1", [], [], {})
