"""Reading an archive while its owner writes it: the owner answers on a unix socket beside the file.

A request is one line of JSON on a connection of its own; the answer is one or more lines:

    {"sql": "SELECT ...", "parameters": [...]}      {"columns": [...], "rows": [...]} ... {"done": true}

An export is made of such questions: whoever asks writes the files, never the owner.
A fault is {"error": "QueryError", "message": "...", "hint": "..."}. An answer that ends without `done` is none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import socketserver
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from db import errors
from db.archive import ProgramArchive
from db.connection import POLL_S, is_owned_here
from db.errors import ArchiveBusyError, ArchiveError, EvolveError, OldSchemaError, QueryError
from db.export import export
from db.queries import Question, Table
from db.reading import ArchiveReader, ExportFormat

QUERY_LIMIT_S = 60.0  # the owner has a search to serve
CONNECT_LIMIT_S = 5.0
OWNER_CLOSES_S = 10.0
_ANSWER_LIMIT_S = QUERY_LIMIT_S + 30.0
_MAX_ADDRESS_BYTES = 107  # struct sockaddr_un holds 108, the last is zero
_MAX_NAME_BYTES = 80


def socket_path(archive: Path) -> Path:
    """Where the owner of an archive listens: `<archive>.sock` beside the file, whatever link it was reached by."""
    archive = archive.resolve()
    name = archive.name + ".sock"
    if len(os.fsencode(name)) > _MAX_NAME_BYTES:
        name = "." + hashlib.sha256(os.fsencode(archive.name)).hexdigest()[:16] + ".sock"
    return archive.with_name(name)


@contextlib.contextmanager
def _address(path: Path) -> Iterator[str]:
    """An address for `bind` and `connect`. One that would be too long goes through an open folder in /proc."""
    if len(os.fsencode(path)) <= _MAX_ADDRESS_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


# ------------------------------------------------------------------------------------------------------------ owner


class ArchiveServer:
    """Answers readers of an archive that this process owns, each in a thread and on a cursor of its own."""

    def __init__(self, archive: ProgramArchive) -> None:
        """Starts to listen.

        Raises:
            OSError: the folder's file system has no sockets.
        """
        self.path = socket_path(archive.path)
        # who owns the file owns the socket: what lies here was left by an owner that was killed
        self.path.unlink(missing_ok=True)
        with _address(self.path) as address:
            self._server = _Server(address, archive)
        self.path.chmod(0o600)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(POLL_S,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops listening and removes the socket."""
        self.path.unlink(missing_ok=True)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: str, archive: ProgramArchive) -> None:
        self.archive = archive
        super().__init__(address, _Connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that went away is nothing to report."""


class _Connection(socketserver.StreamRequestHandler):
    timeout = _ANSWER_LIMIT_S
    server: _Server

    def handle(self) -> None:
        request = json.loads(self.rfile.readline())
        try:
            for line in _answers(self.server.archive, request):
                self._send(line)
        except EvolveError as error:
            self._send({"error": type(error).__name__, "message": error.message, "hint": error.hint})
        else:
            self._send({"done": True})

    def _send(self, line: dict[str, Any]) -> None:
        self.wfile.write(json.dumps(line).encode() + b"\n")


def _answers(archive: ProgramArchive, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "sql" in request:
        for batch in archive.batches(request["sql"], request.get("parameters", ()), limit_s=QUERY_LIMIT_S):
            yield {"columns": batch.columns, "rows": batch.rows}
    else:
        raise QueryError("a request has the key sql", "ask through LiveArchive")


# ----------------------------------------------------------------------------------------------------------- reader


class OwnerGoneError(ArchiveError):
    """Nobody listens at the socket of an archive, or whoever did went away before the answer was whole."""


class LiveArchive(ArchiveReader):
    """An archive that another process owns. The same questions as of the file, answered by the owner.

    When the owner goes, the next question is answered from the file itself, or by the next owner.
    """

    def __init__(self, path: Path | str) -> None:
        """Makes sure that an owner answers.

        Raises:
            OwnerGoneError: nobody listens at the archive's socket.
        """
        self.path = Path(path).resolve()
        self._successor: ArchiveReader | None = None
        self._ask({"sql": "SELECT 1"})

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> Table:
        if self._successor is None:
            with contextlib.suppress(OwnerGoneError):
                lines = self._ask({"sql": sql, "parameters": list(parameters)})
                rows = [tuple(row) for line in lines for row in line["rows"]]
                return Table(columns=lines[0]["columns"], rows=rows)
        return self._follow().query(sql, parameters)

    def export(self, target: Path, file_format: ExportFormat, run_id: str | None = None) -> list[Path]:
        if run_id is not None:
            self.run(run_id)
        return export(self.query, Path(target).absolute(), file_format, run_id)

    def close(self) -> None:
        if self._successor is not None:
            self._successor.close()

    def _rows(self, question: Question) -> list[tuple[Any, ...]]:
        return self.query(*question).rows

    def _follow(self) -> ArchiveReader:
        if self._successor is None:
            self._successor = open_for_reading(self.path, wait_s=OWNER_CLOSES_S)
        return self._successor

    def _ask(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        try:
            with _connected(self.path) as stream:
                stream.write(json.dumps(request).encode() + b"\n")
                stream.flush()
                lines = [json.loads(line) for line in stream]
        except (OSError, ValueError) as error:
            raise _gone(self.path) from error
        last = lines[-1] if lines else {}
        if "error" in last:
            raise getattr(errors, last["error"])(last["message"], last["hint"])
        if "done" not in last:
            raise _gone(self.path)
        return lines[:-1]


@contextlib.contextmanager
def _connected(archive: Path) -> Iterator[Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(CONNECT_LIMIT_S)
        with _address(socket_path(archive)) as address:
            connection.connect(address)
        connection.settimeout(_ANSWER_LIMIT_S)
        with connection.makefile("rwb") as stream:
            yield stream


def _gone(path: Path) -> OwnerGoneError:
    return OwnerGoneError(f"nobody answers for {path}", "its run has ended: read the file itself")


def open_for_reading(path: Path | str, *, wait_s: float = 2.0) -> ProgramArchive | LiveArchive:
    """The archive, through its owner where a process has it open for writing, else from the file.

    An archive of an earlier version is brought up to date first, where it may be written. `wait_s` is how long to wait
    for an owner that holds the file and does not answer yet.

    Raises:
        ArchiveBusyError: the owner does not answer.
        ArchiveError: the file is missing, damaged, no archive, or of a newer schema.
        OldSchemaError: it is of an older schema, and read-only.
    """
    place = Path(path).resolve()
    deadline = time.monotonic() + wait_s
    while True:
        if not is_owned_here(place):
            with contextlib.suppress(OwnerGoneError):
                return LiveArchive(place)
        try:
            return _open_current(place)
        except ArchiveBusyError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(POLL_S)


def _open_current(path: Path) -> ProgramArchive:
    try:
        return ProgramArchive.open(path, read_only=True)
    except OldSchemaError as old:
        try:
            ProgramArchive.open(path).close()
        except ArchiveBusyError:
            raise
        except ArchiveError:
            raise old from None
        return ProgramArchive.open(path, read_only=True)
