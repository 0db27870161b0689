"""Archives that somebody made to do harm: odd names, macros, types and views; none reaches a file."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from archive_records import evaluation, filled

from db.archive import ProgramArchive
from db.connection import SCHEMA_TABLES
from db.errors import ArchiveError, QueryError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "a.duckdb"
    filled(place, [evaluation(1)]).close()
    return place


def change(path: Path, *statements: str) -> None:
    with duckdb.connect(str(path)) as connection:
        for statement in statements:
            connection.execute(statement)


def test_a_table_whose_name_is_sql_writes_nothing(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "written"
    name = f"t') LIMIT 0; COPY (SELECT 'evil') TO '{target}' (FORMAT csv, HEADER false, QUOTE ''); --"
    change(path, f'CREATE TABLE "{name}" (x INTEGER)', "CREATE TABLE t (x INTEGER)")
    with ProgramArchive.open(path, read_only=True) as archive:
        assert len(archive.runs()) == 1
    assert not target.exists()


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE MACRO max(x) AS 7",
        "CREATE MACRO duckdb_tables() AS TABLE SELECT 'evaluations' AS table_name",
        "CREATE MACRO pragma_database_size() AS TABLE SELECT 1 AS block_size",
        "CREATE TYPE JSON AS INTEGER",
    ],
)
@pytest.mark.parametrize("read_only", [True, False])
def test_what_would_stand_in_for_duckdbs_own_is_refused(path: Path, statement: str, read_only: bool) -> None:
    change(path, statement)
    with pytest.raises(ArchiveError, match="of its own"):
        ProgramArchive.open(path, read_only=read_only)


@pytest.mark.parametrize(
    "statements",
    [
        ["DROP TABLE schema_migrations", "CREATE TABLE schema_migrations (other INTEGER)"],
        ["DROP TABLE schema_migrations", "CREATE TABLE schema_migrations (version VARCHAR)",
         "INSERT INTO schema_migrations VALUES ('x')"],
        ["DROP TABLE runs", "CREATE VIEW runs AS SELECT * FROM read_text('/etc/hostname')"],
    ],
)  # fmt: skip
def test_a_schema_that_is_no_archives_is_told(path: Path, statements: list[str]) -> None:
    change(path, *statements)
    with pytest.raises(ArchiveError):
        ProgramArchive.open(path, read_only=True)


@pytest.mark.parametrize("read_only", [True, False])
def test_no_view_and_no_question_reaches_a_file(path: Path, tmp_path: Path, read_only: bool) -> None:
    (tmp_path / "secret").write_text("secret")
    change(path, f"CREATE VIEW looks AS SELECT * FROM read_text('{tmp_path}/secret')")
    with ProgramArchive.open(path, read_only=read_only) as archive:
        for sql in ("SELECT * FROM looks", f"SELECT * FROM read_text('{tmp_path}/secret')"):
            with pytest.raises(QueryError, match="disabled by configuration"):
                archive.query(sql)


def test_the_configuration_is_locked(path: Path) -> None:
    with ProgramArchive.open(path) as archive:
        for sql in ("SET enable_external_access = true", "SET threads = 4"):
            with pytest.raises(duckdb.InvalidInputException, match="locked"):
                archive._connection.execute(sql)
        archive.checkpoint()  # which sets what it needs


def test_every_table_of_the_schema_is_held_against_the_length_of_the_file(tmp_path: Path) -> None:
    """Names are a list, because those of a file may be anything: a new table must come into it."""
    ProgramArchive.open(tmp_path / "new.duckdb").close()
    with duckdb.connect(str(tmp_path / "new.duckdb"), read_only=True) as plain:
        names = {name for (name,) in plain.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    assert names == SCHEMA_TABLES
