"""The socket beside a live archive: where it lies, who may ask what, and what is left of it."""

from __future__ import annotations

import json
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from archive_records import evaluation, filled

from db import live
from db.archive import ProgramArchive
from db.errors import ArchiveBusyError, ArchiveError, QueryError
from db.live import ArchiveServer, LiveArchive, open_for_reading, socket_path


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[ProgramArchive]:
    with filled(tmp_path / "a.duckdb", [evaluation(1)]) as archive:
        yield archive


def n_evaluations(reader: ProgramArchive | LiveArchive) -> int:
    return int(reader.query("SELECT count(*) FROM evaluations").rows[0][0])


def test_readers_see_what_was_just_inserted(owner: ProgramArchive) -> None:
    server = ArchiveServer(owner)
    reader = LiveArchive(owner.path)
    assert n_evaluations(reader) == 1
    owner.insert([evaluation(2), evaluation(3)])
    assert n_evaluations(reader) == 3
    server.close()


def test_the_socket_lies_beside_the_file_and_is_its_owners(owner: ProgramArchive) -> None:
    server = ArchiveServer(owner)
    assert server.path == owner.path.with_name("a.duckdb.sock")
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o600
    server.close()
    assert not server.path.exists()
    with pytest.raises(ArchiveError, match="nobody answers"):
        LiveArchive(owner.path)


@pytest.mark.parametrize("name", ["a.duckdb", "n" * 200 + ".duckdb"])
@pytest.mark.parametrize("folder", ["f", "/".join(["deep" * 10] * 5)])
def test_long_paths(tmp_path: Path, folder: str, name: str) -> None:
    path = tmp_path / folder / name
    path.parent.mkdir(parents=True)
    with filled(path, [evaluation(1)]) as archive:
        server = ArchiveServer(archive)
        assert server.path.parent == path.parent.resolve()
        assert n_evaluations(LiveArchive(path)) == 1
        server.close()
    assert [entry.name for entry in path.parent.iterdir()] == [name]


def test_a_link_leads_to_the_same_socket(owner: ProgramArchive, tmp_path: Path) -> None:
    link = tmp_path / "elsewhere" / "link.duckdb"
    link.parent.mkdir()
    link.symlink_to(owner.path)
    assert socket_path(link) == socket_path(owner.path)


def test_a_relative_path_will_do(owner: ProgramArchive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = ArchiveServer(owner)
    monkeypatch.chdir(owner.path.parent)
    reader = LiveArchive("a.duckdb")
    monkeypatch.chdir("/")
    assert n_evaluations(reader) == 1
    server.close()


def test_a_socket_that_a_killed_owner_left_is_taken_over(owner: ProgramArchive) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(socket_path(owner.path)))
    server = ArchiveServer(owner)
    assert n_evaluations(LiveArchive(owner.path)) == 1
    server.close()


def test_a_socket_that_nobody_serves_does_not_hide_the_file(owner: ProgramArchive) -> None:
    owner.close()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(socket_path(owner.path)))
    with open_for_reading(owner.path) as reader:
        assert isinstance(reader, ProgramArchive) and n_evaluations(reader) == 1


def test_an_owner_that_goes_is_followed(owner: ProgramArchive) -> None:
    server = ArchiveServer(owner)
    with LiveArchive(owner.path) as reader:
        assert n_evaluations(reader) == 1
        owner.insert([evaluation(2)])
        server.close()
        owner.close()
        assert n_evaluations(reader) == 2  # from the file
        assert [row.run_id for row in reader.runs()] == ["r1"]
    with ProgramArchive.open(owner.path) as successor:
        assert successor.insert([evaluation(3)]) == 1


def test_the_next_owner_answers_after_the_first(owner: ProgramArchive) -> None:
    server = ArchiveServer(owner)
    reader = LiveArchive(owner.path)
    server.close()
    owner.close()
    with ProgramArchive.open(owner.path) as successor:
        second = ArchiveServer(successor)
        successor.insert([evaluation(2)])
        assert n_evaluations(reader) == 2
        second.close()


def raw(path: Path, line: bytes) -> list[dict[str, object]]:
    """What the owner answers to a line that `LiveArchive` would never send."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(socket_path(path)))
        connection.sendall(line)
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile() as stream:
            return [json.loads(answer) for answer in stream]


def test_nonsense_does_not_stop_the_owner(owner: ProgramArchive) -> None:
    server = ArchiveServer(owner)
    for line in (
        b"",
        b"\n",
        b"nonsense\n",
        b"[1]\n",
        b"{}\n",
        b'{"sql": 5}\n',
        b'{"sql": "SELECT ?", "parameters": 3}\n',
    ):
        assert not any("done" in answer for answer in raw(owner.path, line))
    assert raw(owner.path, b'{"other": 1}\n')[0]["error"] == "QueryError"
    assert raw(owner.path, b'{"sql": "SELECT 7 AS n"}\n') == [{"columns": ["n"], "rows": [[7]]}, {"done": True}]
    server.close()


def test_a_reader_that_hangs_up_does_not_stop_the_owner(owner: ProgramArchive) -> None:
    server = ArchiveServer(owner)
    for _ in range(3):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(server.path))
            connection.sendall(b'{"sql": "SELECT repeat(\'x\', 1000) FROM range(50000)"}\n')
            connection.recv(100)
    assert n_evaluations(LiveArchive(owner.path)) == 1
    server.close()


def test_a_long_question_is_stopped(owner: ProgramArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "QUERY_LIMIT_S", 0.3)
    server = ArchiveServer(owner)
    reader = LiveArchive(owner.path)
    begin = time.monotonic()
    with pytest.raises(QueryError, match="too long"):
        reader.query("SELECT sum(a.range * b.range) FROM range(10000000) AS a, range(10000000) AS b")
    assert time.monotonic() - begin < 30
    assert owner.insert([evaluation(2)]) == 1
    server.close()


def test_many_readers_at_once_while_the_owner_writes(owner: ProgramArchive) -> None:
    server = ArchiveServer(owner)
    counts: list[int] = []

    def read() -> None:
        reader = LiveArchive(owner.path)
        counts.extend(n_evaluations(reader) for _ in range(5))

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for n in range(10, 30):
        owner.insert([evaluation(n)])
    for thread in threads:
        thread.join(60)
    assert len(counts) == 40 and all(1 <= count <= 21 for count in counts)
    server.close()


def test_export_goes_where_the_reader_stands(
    owner: ProgramArchive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = ArchiveServer(owner)
    (tmp_path / "reader").mkdir()
    monkeypatch.chdir(tmp_path / "reader")
    (file,) = LiveArchive(owner.path).export(Path("out.jsonl"), "jsonl")
    assert file == tmp_path.resolve() / "reader" / "out.jsonl" and file.exists()
    server.close()


def test_the_owner_writes_no_file_for_a_reader(owner: ProgramArchive, tmp_path: Path) -> None:
    server = ArchiveServer(owner)
    target = tmp_path / "written.jsonl"
    request = {"export": str(target), "format": "jsonl"}
    assert raw(owner.path, json.dumps(request).encode() + b"\n")[0]["error"] == "QueryError"
    copy = {"sql": f"COPY (SELECT 1) TO '{target}'"}
    assert raw(owner.path, json.dumps(copy).encode() + b"\n")[0]["error"] == "QueryError"
    assert not target.exists()
    server.close()


def test_an_export_that_cannot_be_written_is_named(owner: ProgramArchive, tmp_path: Path) -> None:
    server = ArchiveServer(owner)
    (tmp_path / "file").write_text("")
    for reader in (owner, LiveArchive(owner.path)):
        with pytest.raises(ArchiveError, match="cannot write"):
            reader.export(tmp_path / "file" / "folder", "parquet")
    server.close()


LATE_OWNER = """
import sys, time
from db.archive import ProgramArchive
from db.live import ArchiveServer

archive = ProgramArchive.open(sys.argv[1])
print("open", flush=True)
time.sleep(1)
server = ArchiveServer(archive)
sys.stdin.readline()
"""


def test_open_for_reading_waits_for_an_owner_that_is_starting(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LATE_OWNER, str(tmp_path / "a.duckdb")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "open\n"
        with pytest.raises(ArchiveBusyError):
            open_for_reading(tmp_path / "a.duckdb", wait_s=0)
        with open_for_reading(tmp_path / "a.duckdb", wait_s=60) as reader:
            assert isinstance(reader, LiveArchive) and n_evaluations(reader) == 0
    finally:
        process.kill()
        process.wait(30)
