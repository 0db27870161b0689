"""Archives as files that other tools read: Parquet, and JSON lines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from db.errors import ArchiveError
from db.reading import ExportFormat

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_OPTIONS: dict[str, str] = {"parquet": "FORMAT parquet, COMPRESSION zstd", "jsonl": "FORMAT json"}

# every table of an export; {run} is a condition on evaluations and runs, true where the whole archive is asked for
_SELECTS: dict[str, str] = {
    "runs": "SELECT * FROM runs WHERE {run} ORDER BY started_at",
    "problems": "SELECT * FROM problems WHERE problem_id IN (SELECT problem_id FROM runs WHERE {run}) OR ({run_free})",
    "programs": "SELECT * FROM programs WHERE program_id IN (SELECT program_id FROM evaluations WHERE {run})",
    "evaluations": "SELECT * FROM evaluations WHERE {run} ORDER BY seq",
    "elites": "SELECT problems.name AS problem, evaluations.* FROM evaluations JOIN problems USING (problem_id)"
    " WHERE seq IN (SELECT arg_min(seq, rank_us) FROM cell_bests WHERE {run}"
    " GROUP BY grid, cell) ORDER BY grid, cell",
    **{
        table: f"SELECT * FROM {table} WHERE {{run}} ORDER BY created_s"
        for table in ("llm_calls", "llm_questions", "lessons", "explanations", "learnt_techniques", "opinions")
    },
}


def export(
    connection: DuckDBPyConnection, target: Path, file_format: ExportFormat, run_id: str | None = None
) -> list[Path]:
    """Writes all tables into a folder, or, where the target has a suffix, the evaluations into one file.

    Raises:
        ArchiveError: the target cannot be written.
    """
    tables = {"evaluations": target} if target.suffix else {t: target / f"{t}.{file_format}" for t in _SELECTS}
    folder = target.parent if target.suffix else target
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArchiveError(f"cannot write {folder}: {error.strerror}", "choose another place") from error
    for table, file in tables.items():
        _copy(connection, table, file, _OPTIONS[file_format], run_id)
    return list(tables.values())


def _copy(connection: DuckDBPyConnection, table: str, file: Path, options: str, run_id: str | None) -> None:
    run = "true" if run_id is None else f"run_id = {_quoted(run_id)}"
    select = _SELECTS[table].format(run=run, run_free="true" if run_id is None else "false")
    connection.execute(f"COPY ({select}) TO {_quoted(str(file))} ({options})")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
