"""Migrations: numbered SQL files that bring an archive's schema up to date, each applied once and whole.

A step and the record that it was taken are one transaction, so a crash between two steps leaves a schema of a known
version. A file is never edited after a release: what must change is a new file.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from db.errors import ArchiveError, OldSchemaError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


class Step(NamedTuple):
    """One migration: `0001_initial.sql` is version 1, named `initial`."""

    version: int
    name: str
    sql: str


@cache
def load_steps(folder: Path = Path(__file__).parent) -> list[Step]:
    """The steps in a folder, in order of their version.

    Raises:
        ValueError: the numbers are not 1, 2, 3, ...
    """
    steps = []
    for file in sorted(folder.glob("*.sql")):
        number, name = file.stem.split("_", 1)
        steps.append(Step(int(number), name, file.read_text()))
    if [s.version for s in steps] != list(range(1, len(steps) + 1)):
        raise ValueError(f"migrations in {folder} must be numbered from 1 without a gap")
    return steps


def version_of(connection: DuckDBPyConnection) -> int:
    """The version of the schema: 0 for an empty file, -1 for a DuckDB file that is no archive."""
    tables = {name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    if "schema_migrations" in tables:
        rows = connection.execute("SELECT coalesce(max(version), 0) FROM schema_migrations").fetchall()
        return int(rows[0][0])
    return -1 if tables else 0


def check_version(connection: DuckDBPyConnection, path: Path, steps: list[Step], *, read_only: bool) -> None:
    """Refuses what this program cannot use.

    Raises:
        ArchiveError: the file is no archive, or of a newer schema.
        OldSchemaError: it is of an older schema, and may not be migrated now.
    """
    version = version_of(connection)
    if version < 0:
        raise ArchiveError(f"{path} is a DuckDB file of something else, not an archive", "name another file")
    if version > len(steps):
        message = f"{path} has schema version {version}, and this program knows versions up to {len(steps)}"
        raise ArchiveError(message, "upgrade it: pip install --upgrade triton-evolve")
    if read_only and version < len(steps):
        message = f"{path} has the older schema version {version}, and reading alone cannot bring it up to date"
        raise OldSchemaError(message, "make it writable, or read a copy: the first command that may write upgrades it")


def migrate(connection: DuckDBPyConnection, steps: list[Step]) -> None:
    """Applies the steps that the archive has not taken."""
    if version_of(connection) == len(steps):
        return
    connection.execute(
        "CREATE TABLE IF NOT EXISTS schema_migrations"
        " (version INTEGER PRIMARY KEY, name VARCHAR NOT NULL, applied_at TIMESTAMP NOT NULL)"
    )
    for step in steps[version_of(connection) :]:
        _apply(connection, step)


def _apply(connection: DuckDBPyConnection, step: Step) -> None:
    connection.execute("BEGIN")
    try:
        connection.execute(step.sql)
        connection.execute(
            "INSERT INTO schema_migrations VALUES (?, ?, timezone('UTC', now()))", [step.version, step.name]
        )
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
