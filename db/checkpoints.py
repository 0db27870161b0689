"""Checkpoints: what was committed moves from the log into the file, a piece at a time and while nobody writes.

While DuckDB writes a table's rows into the file, whoever inserts into it waits. How long depends on how much there is
to write: a quarter of a second for a log of 64 MB, several seconds for one of a gigabyte. So the log is kept short.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb

LOG_BYTES = 64 << 20  # some 14,000 programs
# every checkpoint leaves a piece of each table that grew, and those of idle moments bring small pieces together; one
# merge rewrites up to 122,880 rows, which takes a second or two
N_MERGES = 1
WITHOUT_MERGES = {"max_vacuum_tasks": "0"}  # how DuckDB is configured, for all others


class Checkpoints:
    """The checkpoints of an archive that is open for writing.

    None runs beside a write transaction: one that holds a table and waits for the next could meet a transaction that
    holds the next and waits for the first.
    """

    def __init__(self, path: Path, connection: duckdb.DuckDBPyConnection) -> None:
        """`connection` is one to the archive at `path`; each checkpoint has a cursor of its own."""
        self._log = path.with_name(path.name + ".wal")
        self._connection = connection
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None

    @contextmanager
    def held_off(self) -> Iterator[None]:
        """No checkpoint runs inside: for write transactions. Waits for one that has begun."""
        with self._lock:
            yield

    def run(self) -> None:
        """Empties the log. For idle moments: it brings small pieces together, too.

        Raises:
            duckdb.Error: not now; nothing is lost.
        """
        with self._lock, self._connection.cursor() as cursor:
            cursor.execute(f"SET GLOBAL max_vacuum_tasks = {N_MERGES}")
            try:
                cursor.execute("CHECKPOINT")
            finally:
                cursor.execute("SET GLOBAL max_vacuum_tasks = 0")

    def consider(self) -> None:
        """After a commit: begins a checkpoint in a thread where the log has grown long, and does not wait for it."""
        if self._n_log_bytes() >= LOG_BYTES and not (self._thread and self._thread.is_alive()):
            self._thread = threading.Thread(target=self._run_meanwhile, name="checkpoint")
            self._thread.start()

    def finish(self) -> None:
        """Waits for the one that has begun, if any."""
        if self._thread is not None:
            self._thread.join()

    def _run_meanwhile(self) -> None:
        # the log keeps everything, and a fault of the file is told to whoever asks or writes next
        with suppress(duckdb.Error), self._lock, self._connection.cursor() as cursor:
            cursor.execute("CHECKPOINT")

    def _n_log_bytes(self) -> int:
        try:
            return self._log.stat().st_size
        except FileNotFoundError:
            return 0
