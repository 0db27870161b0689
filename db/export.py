"""Archives as files that other tools read: Parquet, and JSON lines.

Whoever asks writes: the connection to the archive answers questions, and reaches no file but its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb

from db.errors import ArchiveError
from db.queries import Table
from db.reading import ExportFormat

Ask = Callable[[str, Sequence[Any]], Table]
PAGE_ROWS = 5000  # of evaluations that one question asks for
_MAX_ROW_BYTES = 1 << 28

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


def export(ask: Ask, target: Path, file_format: ExportFormat, run_id: str | None = None) -> list[Path]:
    """Writes all tables into a folder, or, where the target has a suffix, the evaluations into one file.

    Raises:
        ArchiveError: the target cannot be written.
    """
    tables = {"evaluations": target} if target.suffix else {t: target / f"{t}.{file_format}" for t in _SELECTS}
    folder = target.parent if target.suffix else target
    write = _write_parquet if file_format == "parquet" else _write_lines
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for table, file in tables.items():
            write(ask, table, file, run_id)
    except OSError as error:
        if isinstance(error, ArchiveError):
            raise
        raise ArchiveError(f"cannot write {folder}: {error.strerror}", "choose another place") from error
    return list(tables.values())


def _write_lines(ask: Ask, table: str, file: Path, run_id: str | None) -> None:
    with file.open("w", encoding="utf-8") as lines:
        for line in _lines(ask, table, run_id):
            lines.write(line + "\n")


def _write_parquet(ask: Ask, table: str, file: Path, run_id: str | None) -> None:
    """By way of lines of JSON, in a DuckDB of its own that reaches nothing but the two files."""
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder, "lines.jsonl")
        _write_lines(ask, table, lines, run_id)
        paths = [str(lines), str(file)]
        with duckdb.connect() as connection:
            connection.execute("SET allowed_paths = ?", [paths])
            connection.execute("SET enable_external_access = false")
            kinds = ", ".join(f"{_quoted(name)}: {_quoted(kind)}" for name, kind in _columns(ask, table, run_id))
            source = f"read_json({_quoted(str(lines))}, format = 'newline_delimited', columns = {{{kinds}}}"
            source += f", maximum_object_size = {_MAX_ROW_BYTES})"
            copy = f"COPY (SELECT * FROM {source}) TO {_quoted(str(file))} (FORMAT parquet, COMPRESSION zstd)"
            try:
                connection.execute(copy)
            except duckdb.Error as error:
                reason = str(error).splitlines()[0]
                raise ArchiveError(f"cannot write {file}: {reason}", "choose another place") from error


def _columns(ask: Ask, table: str, run_id: str | None) -> list[tuple[str, str]]:
    """The columns of a table of the export with their types."""
    return [(row[0], row[1]) for row in ask(f"DESCRIBE {_select(table, run_id)}", ()).rows]


def _lines(ask: Ask, table: str, run_id: str | None) -> Iterator[str]:
    """Every row as an object of JSON. Evaluations come in pages, so that no question takes long."""
    sql = f"SELECT CAST(to_json(one) AS VARCHAR) FROM ({_select(table, run_id)}) AS one"
    if table != "evaluations":
        yield from (line for (line,) in ask(sql, ()).rows)
        return
    last = ask("SELECT coalesce(max(seq), 0) FROM evaluations", ()).rows[0][0]
    for first in range(0, last + 1, PAGE_ROWS):
        page = f"{sql} WHERE seq >= {first} AND seq < {first + PAGE_ROWS} ORDER BY seq"
        yield from (line for (line,) in ask(page, ()).rows)


def _select(table: str, run_id: str | None) -> str:
    run = "true" if run_id is None else f"run_id = {_quoted(run_id)}"
    return _SELECTS[table].format(run=run, run_free="true" if run_id is None else "false")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
