"""Schema changes: numbered, applied once and whole, and a newer schema is left alone."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pytest
from archive_records import evaluation, filled

import db.connection
from db.archive import ProgramArchive
from db.errors import ArchiveError, OldSchemaError
from db.live import open_for_reading
from db.migrations import Step, check_version, load_steps, migrate, version_of

FIRST = Step(1, "initial", "CREATE TABLE a (x INTEGER); INSERT INTO a VALUES (1);")
SECOND = Step(2, "more", "ALTER TABLE a ADD COLUMN y INTEGER; UPDATE a SET y = x + 1;")
BROKEN = Step(2, "broken", "ALTER TABLE a ADD COLUMN y INTEGER; SELECT * FROM nothing;")


def test_steps_are_taken_once() -> None:
    connection = duckdb.connect()
    assert version_of(connection) == 0
    migrate(connection, [FIRST])
    migrate(connection, [FIRST])
    assert version_of(connection) == 1
    migrate(connection, [FIRST, SECOND])
    assert connection.execute("SELECT * FROM a").fetchall() == [(1, 2)]
    recorded = connection.execute("SELECT version, name FROM schema_migrations ORDER BY 1").fetchall()
    assert recorded == [(1, "initial"), (2, "more")]


def test_a_step_and_its_record_are_one_transaction() -> None:
    connection = duckdb.connect()
    with pytest.raises(duckdb.Error):
        migrate(connection, [FIRST, BROKEN])
    assert version_of(connection) == 1
    assert connection.execute("SELECT * FROM a").fetchall() == [(1,)]
    migrate(connection, [FIRST, SECOND])
    assert connection.execute("SELECT * FROM a").fetchall() == [(1, 2)]


def test_an_older_schema_cannot_be_read_only(tmp_path: Path) -> None:
    connection = duckdb.connect()
    migrate(connection, [FIRST])
    check_version(connection, tmp_path, [FIRST, SECOND], read_only=False)
    with pytest.raises(ArchiveError, match="older schema version 1") as caught:
        check_version(connection, tmp_path, [FIRST, SECOND], read_only=True)
    assert caught.value.hint


@pytest.mark.parametrize("read_only", [False, True])
def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "a.duckdb"
    filled(path, [evaluation(1)]).close()
    with duckdb.connect(str(path)) as connection:
        connection.execute("INSERT INTO schema_migrations VALUES (99, 'from_the_future', now()::TIMESTAMP)")
    before = path.read_bytes()
    with pytest.raises(ArchiveError, match="schema version 99") as caught:
        ProgramArchive.open(path, read_only=read_only)
    assert "upgrade" in caught.value.hint and "\n" not in caught.value.message
    assert path.read_bytes() == before


def test_a_crash_before_the_first_step_leaves_a_file_that_opens(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    duckdb.connect(str(path)).close()
    with ProgramArchive.open(path) as archive:
        assert archive.insert([evaluation(1)]) == 1


def test_the_steps_that_ship_are_numbered_without_a_gap(tmp_path: Path) -> None:
    steps = load_steps()
    assert [step.version for step in steps] == list(range(1, len(steps) + 1)) and steps
    (tmp_path / "0002_second.sql").write_text("SELECT 1")
    with pytest.raises(ValueError, match="without a gap"):
        load_steps(tmp_path)


def first_release(path: Path) -> None:
    """An archive as the first version of the schema made it."""
    with duckdb.connect(str(path)) as connection:
        migrate(connection, load_steps()[:1])


def test_reading_brings_an_older_archive_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "old.duckdb"
    first_release(path)
    with open_for_reading(path) as archive:
        assert archive.runs() == []
        assert archive.query("SELECT count(*) FROM attempts").rows == [(0,)]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write every file")
def test_an_older_archive_that_may_not_be_written_is_refused_with_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "old.duckdb"
    first_release(path)
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    with pytest.raises(OldSchemaError, match="older schema version 1") as caught:
        open_for_reading(path)
    assert "copy" in caught.value.hint


def test_an_older_archive_that_cannot_be_upgraded_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "old.duckdb"
    first_release(path)
    monkeypatch.setattr(db.connection, "migrate", _cannot_write)
    with pytest.raises(OldSchemaError, match="older schema version 1"):
        open_for_reading(path)


def _cannot_write(connection: duckdb.DuckDBPyConnection, steps: list[Step]) -> None:
    raise ArchiveError("read-only file system")
