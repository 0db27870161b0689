"""Opening a DuckDB file as an archive: whose it is, whether it is whole, and what to say when it is not."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from db.checkpoints import WITHOUT_MERGES
from db.errors import ArchiveBusyError, ArchiveError
from db.migrations import check_version, load_steps, migrate

# DuckDB's own checkpoint, in the middle of a commit, is the last resort: see `db.checkpoints`
CHECKPOINT_THRESHOLD = "1GB"
POLL_S = 0.1

_BYTES_BEFORE_BLOCKS = 3 * 4096  # a DuckDB file: three headers, then blocks
_MAGIC_AT, _MAGIC = 8, b"DUCK"
_LOCKED = re.compile(r"Conflicting lock is held in (?P<program>.*?) \(PID (?P<pid>\d+)\)")
_NO_SPACE = ("No space left", "File too large", "Disk quota exceeded")
_NOT_ALLOWED = ("Permission denied", "Read-only file system", "Operation not permitted")
_DAMAGED = ("not a valid DuckDB", "Could not read enough bytes", "Corrupt database", "Serialization Error")
# DuckDB raises what it finds broken inside a file as its plain Error, and after an error that it cannot undo, such as a
# checkpoint on a full disk, answers everything with the fatal one
_FILE_FAULTS = (duckdb.OperationalError, duckdb.InternalError, duckdb.FatalException)

# every index of the schema: what a file that was cut short has lost last
_INDEXED = {
    "problems": ("problem_id",),
    "runs": ("run_id",),
    "evaluations": ("candidate_id", "seq", "program_id", "fingerprint"),
    "explanations": ("candidate_id",),
    "llm_questions": ("question_id",),
}

# every table of the schema; a file may hold others, of any name
SCHEMA_TABLES = {
    *("schema_migrations", "problems", "runs", "evaluations", "cell_bests", "imported_knowledge", "imported_recipes"),
    *("llm_calls", "llm_questions", "llm_dialogues", "lessons", "explanations", "learnt_techniques", "opinions"),
}

_owned: set[Path] = set()  # the files that this process has open for writing: DuckDB's lock is per process
_owned_lock = threading.Lock()


def connect(path: Path, *, read_only: bool, wait_s: float) -> duckdb.DuckDBPyConnection:
    """Opens the archive, waiting up to `wait_s` seconds for its owner to go.

    Raises:
        ArchiveBusyError: another process, or another part of this one, holds it.
        ArchiveError: it is missing (reading), damaged, not writable, no archive, or of a newer schema.
    """
    _check_place(path, read_only)
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return _connect_once(path, read_only)
        except ArchiveBusyError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(POLL_S)


def disown(path: Path) -> None:
    """Says that this process no longer has the file open for writing."""
    with _owned_lock:
        _owned.discard(path)


def is_owned_here(path: Path) -> bool:
    """True when this process has the file open for writing."""
    with _owned_lock:
        return path in _owned


def _check_place(path: Path, read_only: bool) -> None:
    try:
        if path.is_dir():
            raise ArchiveError(f"{path} is a folder", "name a file: --archive FILE")
        if read_only and not path.exists():
            raise ArchiveError(f"there is no archive {path}", "evolve run writes one; --archive FILE names another")
        if not path.parent.is_dir():
            raise ArchiveError(f"the folder {path.parent} does not exist", f"create it: mkdir -p {path.parent}")
        if path.exists() and not _has_magic(path):
            raise _damaged(path, "it is no DuckDB file")
    except PermissionError as error:
        raise _not_allowed(path) from error


def _has_magic(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(_MAGIC_AT + len(_MAGIC)).endswith(_MAGIC)


def _connect_once(path: Path, read_only: bool) -> duckdb.DuckDBPyConnection:
    with _owned_lock:
        is_owned = path in _owned
        if is_owned and not read_only:
            raise _busy(path, os.getpid(), "this process")
        with translated(path):
            # within one process DuckDB shares the instance, and insists on the owner's configuration
            connection = _open_file(path, read_only and not is_owned)
        try:
            with translated(path), _told(path):
                _check_plain(connection, path)
                check_whole(connection, path)
                check_version(connection, path, load_steps(), read_only=read_only)
                if not read_only:
                    migrate(connection, load_steps())
                _read_ends(connection)
        except BaseException:
            connection.close()
            raise
        if not read_only:
            _owned.add(path)
        return connection


def _open_file(path: Path, read_only: bool) -> duckdb.DuckDBPyConnection:
    config = {
        "checkpoint_threshold": CHECKPOINT_THRESHOLD,
        **WITHOUT_MERGES,
        "autoinstall_known_extensions": "false",  # never reach for the network
        "enable_external_access": "false",  # an archive may come from anywhere, and its views may name files
        "python_enable_replacements": "false",
        "lock_configuration": "true",
        "allowed_configs": ["max_vacuum_tasks"],  # of checkpoints
        # an owner's questions are small, and its cores belong to the search
        "threads": str(min(4, os.cpu_count() or 1)) if read_only else "1",
    }
    return duckdb.connect(str(path), read_only=read_only, config=config)


def _check_plain(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Refuses an archive that would put functions, types or triggers of its own in the place of DuckDB's.

    The questions are asked of the system's own catalogue by its full name, which no file can cover up.
    """
    for what, name in (("function", "functions"), ("type", "types"), ("trigger", "triggers")):
        condition = "" if what == "trigger" else " WHERE NOT internal"
        sql = f"SELECT {what}_name FROM system.main.duckdb_{name}(){condition}"
        if found := connection.execute(sql).fetchall():
            raise _damaged(path, f"it has a {what} of its own, {str(found[0][0])[:80]!r}, which no archive has")


def check_whole(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """A truncated file opens, answers count(*), and fails at some later question: so compare its length at once.

    A whole file holds at least as many blocks as are in use, and the last one that a table names; the free ones at its
    end are cut off at checkpoints.
    """
    block_size, n_used = connection.execute("SELECT block_size, used_blocks FROM pragma_database_size()").fetchall()[0]
    last_blocks = [
        connection.execute(
            "SELECT coalesce(max(greatest(block_id, list_max(additional_block_ids))), -1)"
            " FROM pragma_storage_info(?) WHERE persistent",
            [table],
        ).fetchall()[0][0]
        for table in sorted(_tables(connection) & SCHEMA_TABLES)
    ]
    n_blocks = max([n_used, *(block + 1 for block in last_blocks)])
    n_expected = _BYTES_BEFORE_BLOCKS + block_size * n_blocks if n_blocks else 0
    if path.stat().st_size < n_expected:
        raise _damaged(path, f"it is truncated: {path.stat().st_size:,} bytes of at least {n_expected:,}")


def _tables(connection: duckdb.DuckDBPyConnection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}


def _read_ends(connection: duckdb.DuckDBPyConnection) -> None:
    """Reads the last row of every table, and finds it again through every index."""
    for table, columns in _INDEXED.items():
        last = connection.execute(f"SELECT * FROM {table} WHERE rowid = (SELECT max(rowid) FROM {table})")
        names = [column[0] for column in last.description or ()]
        for row in last.fetchall():
            for column in columns:
                connection.execute(f"SELECT {column} FROM {table} WHERE {column} = ?", [row[names.index(column)]])


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turns what an odd file does to questions about its schema into an error that says so."""
    try:
        yield
    except duckdb.Error as error:
        if is_file_fault(error) and _translate(path, str(error)) is not None:
            raise
        raise _damaged(path, str(error).splitlines()[0]) from error
    except (IndexError, TypeError, ValueError) as error:
        raise _damaged(path, "its tables are not those of an archive") from error


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turns what DuckDB says about the file into an error with a hint. What it says about a query passes through."""
    try:
        yield
    except duckdb.Error as error:
        fault = _translate(path, str(error)) if is_file_fault(error) else None
        if fault is None:
            raise
        raise fault from error


def is_file_fault(error: duckdb.Error) -> bool:
    """True for what DuckDB says about files, transactions and itself; False for what it says about SQL and values."""
    return isinstance(error, _FILE_FAULTS) or type(error) is duckdb.Error


def _translate(path: Path, text: str) -> ArchiveError | None:
    """The error for what DuckDB says, or None when it says nothing about the file."""
    if locked := _LOCKED.search(text):
        return _busy(path, int(locked["pid"]), _command_of(int(locked["pid"])) or locked["program"])
    if "Could not set lock" in text:
        return _busy(path, None, "another process")
    if "different configuration" in text:
        return _busy(path, os.getpid(), "this process, for reading")
    if any(sign in text for sign in _NO_SPACE):
        hint = "free some space and go on with evolve resume: everything that was acknowledged is kept"
        return ArchiveError(f"no space left for {path}", hint)
    if any(sign in text for sign in _NOT_ALLOWED):
        return _not_allowed(path)
    if any(sign in text for sign in _DAMAGED):
        return _damaged(path, text.splitlines()[0])
    if "IO Error" in text or "FATAL" in text or "INTERNAL" in text:
        return ArchiveError(f"{path} cannot be used: {text.splitlines()[0]}", "mend that, or name another file")
    return None


def _not_allowed(path: Path) -> ArchiveError:
    if not os.access(path.parent, os.X_OK, effective_ids=True):
        return ArchiveError(
            f"the folder of {path} may not be entered", "ask its owner, or name another: --archive FILE"
        )
    if path.exists() and not os.access(path, os.R_OK, effective_ids=True):
        return ArchiveError(f"{path} may not be read", f"ask its owner, or: chmod u+r {path}")
    what = path if path.exists() and not os.access(path, os.W_OK, effective_ids=True) else f"the folder {path.parent}"
    return ArchiveError(f"{what} is read-only", "choose a place that can be written: --archive FILE")


def _damaged(path: Path, detail: str) -> ArchiveError:
    hint = "take a backup, or begin a new file with --archive FILE"
    return ArchiveError(f"{path} is damaged or no archive: {detail}", hint)


def _busy(path: Path, pid: int | None, who: str) -> ArchiveBusyError:
    holder = f"{who} (PID {pid})" if pid is not None else who
    hint = "wait until it ends, write to another file with --archive FILE, or read it meanwhile with evolve elites"
    return ArchiveBusyError(f"{path} is held by {holder}", hint, pid)


def _command_of(pid: int) -> str:
    """The command line of a process, shortened; empty where it cannot be seen."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").split()
    except OSError:
        return ""
    text = " ".join(words)
    return text if len(text) <= 80 else text[:77] + "..."
