"""Checkpoints beside a writer: they keep the log short, wait for its transactions, and lose nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from archive_records import evaluation

from db import checkpoints
from db.archive import ProgramArchive
from db.checkpoints import Checkpoints

PIECES = "SELECT count(DISTINCT row_group_id) FROM pragma_storage_info('evaluations')"


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[ProgramArchive]:
    with ProgramArchive.open(tmp_path / "a.duckdb") as opened:
        yield opened


@pytest.fixture
def from_the_first_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every commit makes the log long."""
    monkeypatch.setattr(checkpoints, "LOG_BYTES", 1)


def n_log_bytes(archive: ProgramArchive) -> int:
    log = archive.path.with_name(archive.path.name + ".wal")
    try:
        return log.stat().st_size
    except FileNotFoundError:  # a checkpoint has just taken it away
        return 0


def wait_for_an_empty_log(archive: ProgramArchive) -> None:
    deadline = time.monotonic() + 20
    while n_log_bytes(archive) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert n_log_bytes(archive) == 0


def test_a_short_log_is_left_alone(archive: ProgramArchive) -> None:
    archive.insert([evaluation(1)])
    assert n_log_bytes(archive) > 0
    assert "checkpoint" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.usefixtures("from_the_first_byte")
def test_a_long_log_is_emptied_without_being_asked(archive: ProgramArchive) -> None:
    for n in range(2):
        archive.insert([evaluation(n)])
        wait_for_an_empty_log(archive)
    assert len(archive.evaluations("r1")) == 2


@pytest.mark.usefixtures("from_the_first_byte")
def test_none_runs_beside_a_write(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE numbers AS SELECT 1 AS n")
        its_checkpoints, log = Checkpoints(path, connection), path.with_name("a.duckdb.wal")
        with its_checkpoints.held_off():
            its_checkpoints.consider()
            time.sleep(0.05)
            assert log.stat().st_size > 0
        its_checkpoints.finish()
        assert not log.exists() or log.stat().st_size == 0  # nobody takes it away any more


@pytest.mark.usefixtures("from_the_first_byte")
def test_idle_ones_bring_pieces_together(archive: ProgramArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(8):
        archive.insert([evaluation(n)])
        wait_for_an_empty_log(archive)
    assert archive.query(PIECES).rows == [(8,)]
    monkeypatch.undo()
    for n in range(8, 16):
        archive.insert([evaluation(n)])
        archive.checkpoint()
    assert archive.query(PIECES).rows[0][0] < 8


@pytest.mark.usefixtures("from_the_first_byte")
def test_writers_and_readers_go_on_beside_them(archive: ProgramArchive) -> None:
    done = threading.Event()
    seen: list[int] = []

    def read() -> None:
        while not done.is_set():
            seen.append(len(archive.evaluations("r1")))

    reader = threading.Thread(target=read)
    reader.start()
    writers = [
        threading.Thread(target=lambda w=w: [archive.insert([evaluation(10 * w + n)]) for n in range(10)])
        for w in range(3)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    done.set()
    reader.join()
    assert seen == sorted(seen)
    assert {e.candidate.candidate_id for e in archive.evaluations("r1")} == {f"r1-0-{n:06d}" for n in range(30)}
