"""`ProgramArchive`: the durable store of everything ever tried, one DuckDB file for many runs.

Elites, lineage and parents are questions about the evaluations, never a second truth.
"""

from __future__ import annotations

import datetime
import json
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from db.bests import CellBests
from db.checkpoints import Checkpoints
from db.collector import collector_paused
from db.connection import connect, disown, is_file_fault, translated
from db.errors import ArchiveError, QueryError
from db.export import export
from db.knowledge import TechniqueEvidence
from db.llm_calls import INSERT as INSERT_LLM_CALLS
from db.llm_calls import LlmCall, columns_of
from db.llm_questions import ANSWER, CLOSE, KEEP_DIALOGUES, LlmQuestion, dialogue_rows
from db.llm_questions import INSERT as INSERT_LLM_QUESTIONS
from db.llm_questions import columns_of as columns_of_questions
from db.loading import loading
from db.opinions import ProgramOpinion
from db.opinions import store as store_opinions
from db.queries import Elite, LineageRow, Question, Table
from db.reading import ArchiveReader, ExportFormat
from db.recipes import Recipe
from db.records import CONFIRM, Evaluation, Problem, Run, Verdict
from db.reflections import Reflection
from db.reflections import store as store_reflection
from db.rows import REPROFILED, reprofiled, row_of

__all__ = ["ArchiveReader", "Elite", "LineageRow", "ProgramArchive", "Table"]

BATCH_ROWS = 1000
_REPROFILE = (
    f"UPDATE evaluations SET {', '.join(f'{name} = ?' for name in REPROFILED)} WHERE candidate_id = ? RETURNING seq"
)
_IMPORT = "INSERT INTO {table} SELECT unnest(?::VARCHAR[]), unnest(?::JSON[]), unnest(?::TIMESTAMP[])"
# what was claimed of the same work before holds no cell any more: winners are chosen, and so they were lucky
_SUPERSEDE = (
    "UPDATE evaluations SET rank_us = NULL"
    " WHERE (program_id = ? OR fingerprint = ?) AND problem_id = ? AND hardware_id = ? AND precision = ? AND seq < ?"
    " AND rank_us IS NOT NULL RETURNING seq"
)


class Batch(NamedTuple):
    """A piece of an answer, as the live socket sends it."""

    columns: list[str]
    rows: list[tuple[Any, ...]]


class ProgramArchive(ArchiveReader):
    """One archive file, open in this process. Reads may come from several threads; so may writes, one at a time."""

    def __init__(self, path: Path, connection: duckdb.DuckDBPyConnection, *, read_only: bool) -> None:
        self.path = path
        self.read_only = read_only
        self._connection = connection
        self._lock = threading.RLock()  # the connection itself belongs to the writer; each reader has a cursor
        self._seq = 0 if read_only else self._last_seq()
        self._bests = CellBests()
        self._checkpoints = Checkpoints(path, connection)

    @classmethod
    def open(cls, path: Path | str, *, read_only: bool = False, wait_s: float = 0.0) -> ProgramArchive:
        """Opens an archive, for writing by default; a file that is not there is made.

        `wait_s` is how many seconds to wait for another process to let go of it.

        Raises:
            ArchiveBusyError: another process holds it, or this one does already.
            ArchiveError: it is missing (reading), truncated, in a read-only folder, or of a newer schema.
        """
        place = Path(path).resolve()
        return cls(place, connect(place, read_only=read_only, wait_s=wait_s), read_only=read_only)

    # ---------------------------------------------------------------------------------------------------- writing

    def add_problem(self, problem: Problem) -> None:
        """Stores a problem; one that is there already stays as it is."""
        values = [problem.problem_id, problem.name, problem.kind, _dump(problem), _now()]
        with self._writing() as connection:
            connection.execute("INSERT INTO problems VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", values)

    def add_run(self, run: Run) -> None:
        """Stores a run. Adding the same run again changes nothing.

        Raises:
            ArchiveError: another run has this id.
        """
        stored = self._rows(Question("SELECT record FROM runs WHERE run_id = ?", [run.run_id]))
        if stored and Run.model_validate_json(stored[0][0]) != run:
            raise ArchiveError(f"{self.path} holds another run {run.run_id}", "every run needs an id of its own")
        if not stored:
            values = _run_values(run)
            with self._writing() as connection:
                connection.execute(f"INSERT INTO runs VALUES ({', '.join('?' * len(values))})", list(values.values()))

    def update_run(self, run: Run) -> None:
        """Replaces what is stored of a run.

        Raises:
            NotFoundError: it was never added.
        """
        self.run(run.run_id)
        values = {name: value for name, value in _run_values(run).items() if name != "run_id"}
        sets = ", ".join(f"{name} = ?" for name in values)
        with self._writing() as connection:
            connection.execute(f"UPDATE runs SET {sets} WHERE run_id = ?", [*values.values(), run.run_id])

    def insert(self, evaluations: Sequence[Evaluation]) -> int:
        """Stores evaluations in one transaction and returns how many were new. They are durable when it returns.

        A candidate that is there already stays as it is, so an insert may be repeated.
        """
        return len(self.insert_new(evaluations))

    def insert_new(self, evaluations: Sequence[Evaluation]) -> set[str]:
        """As `insert`, and returns the ids of the candidates that were new."""
        batch = {e.candidate.candidate_id: e for e in reversed(evaluations)}
        if not batch:
            return set()
        in_order = list(reversed(batch.values()))
        with self._lock, collector_paused():
            try:
                self._insert(in_order)
            except duckdb.ConstraintException:
                known = self._known_ids(list(batch))
                in_order = [e for e in in_order if e.candidate.candidate_id not in known]
                self._insert(in_order)
        return {e.candidate.candidate_id for e in in_order}

    def reprofile(self, verdicts: Sequence[Verdict]) -> None:
        """Puts what counters said later in the place of an earlier profile: profile, tier, state and cell.

        A candidate id that the archive does not hold is passed over; latency and gates are not touched.
        """
        with self._writing() as connection:
            changed = [(_REPROFILE, [*reprofiled(verdict), verdict.candidate_id]) for verdict in verdicts]
            self._change(connection, changed)

    def import_knowledge(
        self, evidence: Sequence[TechniqueEvidence], origin: str, recipes: Sequence[Recipe] = ()
    ) -> None:
        """Stores what was learnt elsewhere, in the place of what came from the same origin before."""
        with self._writing() as connection:
            for table, records in (("imported_knowledge", evidence), ("imported_recipes", recipes)):
                connection.execute(f"DELETE FROM {table} WHERE origin = ?", [origin])
                if records:
                    texts = [one.model_dump_json() for one in records]
                    columns = [[origin] * len(texts), texts, [_now()] * len(texts)]
                    connection.execute(_IMPORT.format(table=table), columns)

    def add_llm_calls(self, calls: Sequence[LlmCall]) -> None:
        """Stores calls of language models in one transaction; one that is there already stays as it is."""
        if calls:
            with self._writing() as connection:
                connection.execute(INSERT_LLM_CALLS, columns_of(calls))

    def add_reflection(self, reflection: Reflection) -> None:
        """Stores what a reflection taught in one transaction: its lessons take the place of the island's earlier ones.

        An attempt that was explained before, and a technique that the run learnt before, stay as they are.
        """
        with self._writing() as connection:
            store_reflection(connection, reflection)

    def add_opinions(self, opinions: Sequence[ProgramOpinion]) -> None:
        """Stores what a judge thinks of programs; of each the first opinion that a run got."""
        with self._writing() as connection:
            store_opinions(connection, opinions)

    def exchange(
        self, run_id: str, heard: Sequence[str], asked: Sequence[LlmQuestion], dialogues: Mapping[int, Any]
    ) -> None:
        """The end of a sitting, whole or not at all: answers that islands have heard, new questions, and where the
        dialogues of each island stand.

        Args:
            heard: ids of questions that are closed with it.
            dialogues: by island; JSON.
        """
        with self._writing() as connection:
            connection.execute(CLOSE, [list(heard)])
            if asked:
                connection.execute(INSERT_LLM_QUESTIONS, columns_of_questions(asked))
            for row in dialogue_rows(run_id, dialogues):
                connection.execute(KEEP_DIALOGUES, row)

    def take_answers(self, answers: Mapping[str, Mapping[str, Any]], calls: Sequence[LlmCall]) -> None:
        """Stores what came back of questions that wait, by their ids, with what it cost, in one transaction.

        A question that does not wait, and a call that is there already, stay as they are.
        """
        with self._writing() as connection:
            for question_id, answer in answers.items():
                connection.execute(ANSWER, [json.dumps(answer), question_id])
            if calls:
                connection.execute(INSERT_LLM_CALLS, columns_of(calls))

    def checkpoint(self) -> None:
        """Moves what was written from the log into the file. Stalls readers and writers; for idle moments.

        Raises:
            ArchiveError: not now; nothing is lost.
        """
        try:
            with self._lock, translated(self.path):
                self._checkpoints.run()
        except duckdb.Error as error:
            hint = "the log keeps everything meanwhile"
            raise ArchiveError(f"the log of {self.path} stays as it is: {str(error).splitlines()[0]}", hint) from error

    def close(self) -> None:
        """Closes the file. What was written is in the file itself afterwards, and another process may open it."""
        with self._lock:
            try:
                self._checkpoints.finish()
                with translated(self.path):
                    self._connection.close()
            finally:
                if not self.read_only:
                    disown(self.path)

    # ---------------------------------------------------------------------------------------------------- reading

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> Table:
        batches = list(self.batches(sql, parameters))
        return Table(columns=batches[0].columns, rows=[row for batch in batches for row in batch.rows])

    def batches(self, sql: str, parameters: Sequence[Any] = (), limit_s: float | None = None) -> Iterator[Batch]:
        """Answers a question piecewise, at least one piece. Raises as `query`, also after `limit_s` seconds."""
        cursor = self._cursor()
        timer = threading.Timer(limit_s, cursor.interrupt) if limit_s else None
        if timer:
            timer.start()
        try:
            with translated(self.path), _refused(self.path):
                _check_reads(cursor, sql)
                cursor.execute("BEGIN TRANSACTION READ ONLY")
                cursor.execute(sql, list(parameters))
                columns = [column[0] for column in cursor.description or ()]
                rows = cursor.fetchmany(BATCH_ROWS)
                while True:
                    yield Batch(columns, [tuple(_plain(value) for value in row) for row in rows])
                    rows = cursor.fetchmany(BATCH_ROWS)
                    if not rows:
                        return
        finally:
            if timer:
                timer.cancel()
            cursor.close()

    def export(self, target: Path, file_format: ExportFormat, run_id: str | None = None) -> list[Path]:
        if run_id is not None:
            self.run(run_id)
        return export(self.query, Path(target), file_format, run_id)

    # ---------------------------------------------------------------------------------------------------- private

    def _rows(self, question: Question) -> list[tuple[Any, ...]]:
        with translated(self.path):
            rows: list[tuple[Any, ...]] = self._cursor().execute(question.sql, question.parameters).fetchall()
        return rows

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        with translated(self.path):
            return self._connection.cursor()

    @contextmanager
    def _writing(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """One transaction, one writer at a time."""
        if self.read_only:
            raise ArchiveError(f"{self.path} was opened for reading only", "open it without read_only")
        with self._lock, self._checkpoints.held_off(), translated(self.path):
            self._connection.execute("BEGIN")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                _roll_back(self._connection)
                self._bests.forget()
                raise

    def _insert(self, evaluations: Sequence[Evaluation]) -> None:
        if not evaluations:
            return
        rows = [row_of(e, self._seq + n) for n, e in enumerate(evaluations, start=1)]
        with loading(self._connection, rows) as statement, self._writing() as connection:
            connection.execute(*statement)
            self._bests.add(connection, rows)
            looks = [(e, self._seq + n) for n, e in enumerate(evaluations, start=1) if _is_second_look(e)]
            self._change(connection, [(_SUPERSEDE, _superseded(*look)) for look in looks])
        self._seq += len(rows)
        self._checkpoints.consider()

    def _change(self, connection: duckdb.DuckDBPyConnection, updates: Sequence[tuple[str, list[Any]]]) -> None:
        """Updates that answer with the rows that they changed."""
        seqs = [row[0] for sql, values in updates for row in connection.execute(sql, values).fetchall()]
        if seqs:
            self._bests.mend(connection, seqs)

    def _known_ids(self, candidate_ids: list[str]) -> set[str]:
        sql = "SELECT candidate_id FROM evaluations WHERE candidate_id IN (SELECT unnest(?::VARCHAR[]))"
        return {row[0] for row in self._rows(Question(sql, [candidate_ids]))}

    def _last_seq(self) -> int:
        return int(self._rows(Question("SELECT coalesce(max(seq), 0) FROM evaluations", []))[0][0])


def _is_second_look(evaluation: Evaluation) -> bool:
    return evaluation.candidate.lineage.operator == CONFIRM


def _superseded(evaluation: Evaluation, seq: int) -> list[Any]:
    """The parameters of `_SUPERSEDE` for a second judgement in row `seq`."""
    verdict = evaluation.verdict
    fingerprint = verdict.fingerprint or None  # NULL equals nothing
    return [verdict.program_id, fingerprint, verdict.problem_id, verdict.hardware_id, verdict.precision, seq]


def _roll_back(connection: duckdb.DuckDBPyConnection) -> None:
    # a failed commit has rolled back already, and a database that is gone cannot: the first error says why
    with suppress(duckdb.Error):
        connection.execute("ROLLBACK")


def _check_reads(cursor: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Lets one statement through that reads. The read-only transaction stops a write that hides in a SELECT."""
    statements = cursor.extract_statements(sql)
    if len(statements) != 1:
        raise QueryError(f"one statement at a time, not {len(statements)}", "ask for one SELECT")
    if statements[0].type not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
        kind = str(statements[0].type).rpartition(".")[2]
        raise QueryError(f"only questions are answered, not {kind}", "use SELECT; evolve export writes files")


_TABLES = (
    "tables: runs, problems, programs, evaluations, elites, attempts, llm_calls, llm_questions, lessons, explanations,"
    " learnt_techniques, opinions; DESCRIBE evaluations lists the columns of one"
)


@contextmanager
def _refused(path: Path) -> Iterator[None]:
    """Turns what is wrong with a question into a `QueryError`; what is wrong with the archive's file passes through."""
    try:
        yield
    except duckdb.InterruptException as error:
        raise QueryError("the question took too long", "narrow it with WHERE or LIMIT") from error
    except duckdb.TransactionException as error:
        raise QueryError("only questions are answered, not writes", "use SELECT") from error
    except duckdb.Error as error:
        # a question may name files of its own, and theirs are its faults
        if is_file_fault(error) and (str(path) in str(error) or "Corrupt" in str(error)):
            raise
        said, *advice = str(error).partition("\n\n")[0].splitlines()
        raise QueryError(said, " ".join(advice) or _TABLES) from error


def _plain(value: Any) -> Any:
    """What JSON can say, so that the answer is the same from the file and from its owner."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float | Decimal):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


def _run_values(run: Run) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "problem_id": run.problem_id,
        "status": run.status,
        "device": run.device,
        "hardware_id": run.hardware.hardware_id,
        "precision": run.precision,
        "latency_kind": run.latency_kind,
        "rng_seed": run.rng_seed,
        "stop_reason": run.stop_reason,
        "started_at": _utc(run.started_at),
        "finished_at": None if run.finished_at is None else _utc(run.finished_at),
        "record": _dump(run),
    }


def _dump(record: Problem | Run) -> str:
    return record.model_dump_json(round_trip=True)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None)


def _utc(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).replace(tzinfo=None)
