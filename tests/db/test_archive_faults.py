"""What a user can mend is one line and a hint: nothing else comes out of opening or writing an archive."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest
from archive_records import evaluation, filled

from db.archive import ProgramArchive
from db.connection import check_whole
from db.errors import ArchiveBusyError, ArchiveError
from db.live import open_for_reading

FOLDER = Path(__file__).parent
OWNER = """
import sys
from db.archive import ProgramArchive
archive = ProgramArchive.open(sys.argv[1])
print("open", flush=True)
sys.stdin.readline()
archive.close()
print("closed", flush=True)
sys.stdin.readline()
"""


def refusal(path: Path, *, read_only: bool = False) -> ArchiveError:
    """The error of opening, which must be one line with a hint."""
    with pytest.raises(ArchiveError) as caught:
        ProgramArchive.open(path, read_only=read_only)
    error = caught.value
    assert str(path) in error.message and "\n" not in error.message
    assert error.hint
    return error


@contextmanager
def owner_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the archive open until it reads a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "open\n"
        yield process
    finally:
        process.kill()
        process.wait(30)


# ------------------------------------------------------------------------------------------------------------- busy


def test_a_busy_archive_says_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    with owner_process(path) as owner:
        error = refusal(path)
        assert isinstance(error, ArchiveBusyError) and error.owner_pid == owner.pid
        assert f"PID {owner.pid}" in error.message
        assert "--archive" in error.hint and "wait" in error.hint
        assert isinstance(refusal(path, read_only=True), ArchiveBusyError)


def test_opening_waits_for_the_owner_to_go(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    with owner_process(path) as owner:
        begin = time.monotonic()
        with pytest.raises(ArchiveBusyError):
            ProgramArchive.open(path, wait_s=0.3)
        assert 0.3 <= time.monotonic() - begin < 10
        timer = threading.Timer(0.5, lambda: print(file=owner.stdin, flush=True))
        timer.start()
        with ProgramArchive.open(path, wait_s=60) as archive:
            assert archive.runs() == []
        timer.join()


def test_the_same_process_is_an_owner_too(tmp_path: Path) -> None:
    with ProgramArchive.open(tmp_path / "a.duckdb") as archive:
        error = refusal(archive.path)
        assert isinstance(error, ArchiveBusyError) and error.owner_pid == os.getpid()
        with open_for_reading(archive.path) as reader:
            assert reader.runs() == []
    with ProgramArchive.open(tmp_path / "a.duckdb") as archive:
        assert archive.insert([evaluation()]) == 1


def test_a_reader_in_this_process_keeps_writers_out(tmp_path: Path) -> None:
    filled(tmp_path / "a.duckdb", []).close()
    with ProgramArchive.open(tmp_path / "a.duckdb", read_only=True) as reader:
        assert isinstance(refusal(reader.path), ArchiveBusyError)
        with ProgramArchive.open(tmp_path / "a.duckdb", read_only=True) as second:
            assert second.run("r1") == reader.run("r1")


# ---------------------------------------------------------------------------------------------------- damaged files


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of an archive of several blocks, some of them free."""
    path = tmp_path_factory.mktemp("whole") / "a.duckdb"
    for begin in (0, 150, 300):
        with ProgramArchive.open(path) as archive:
            sources = (f"def kernel_function(x):\n    '{os.urandom(2000).hex()}'\n" for _ in range(150))
            archive.insert([evaluation(begin + n, source=source) for n, source in enumerate(sources)])
    return path.read_bytes()


@pytest.mark.parametrize("share", [0.99, 0.9, 0.5, 0.1, 0.0001])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_truncated_file_is_refused_at_once(tmp_path: Path, whole: bytes, share: float, read_only: bool) -> None:
    path = tmp_path / "a.duckdb"
    path.write_bytes(whole[: int(len(whole) * share)])
    error = refusal(path, read_only=read_only)
    assert "damaged" in error.message and "--archive" in error.hint


def test_lost_blocks_are_seen_without_reading_them(tmp_path: Path, whole: bytes) -> None:
    """Whatever was written last may lie anywhere in the file: its length is a witness of its own."""
    path = tmp_path / "a.duckdb"
    path.write_bytes(whole)
    with duckdb.connect(str(path), read_only=True) as connection:
        check_whole(connection, path)
        connection.execute("SELECT sum(length(source)) FROM evaluations").fetchall()
        path.write_bytes(whole[: len(whole) // 3])
        with pytest.raises(ArchiveError, match="truncated"):
            check_whole(connection, path)


def test_the_whole_file_is_not_refused(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "a.duckdb"
    path.write_bytes(whole)
    with ProgramArchive.open(path, read_only=True) as archive:
        assert len(archive.evaluations("r1")) == 450


@pytest.mark.parametrize("content", [b"", b"hello" * 5000, b"\0" * 20000, b"SQLite format 3\0" + b"\0" * 5000])
def test_what_is_no_duckdb_file_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.duckdb"
    path.write_bytes(content)
    for read_only in (False, True):
        assert "no archive" in refusal(path, read_only=read_only).message
    assert path.read_bytes() == content


def test_a_duckdb_file_of_something_else_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "other.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE mine (a INTEGER)")
    assert "something else" in refusal(path).message
    with duckdb.connect(str(path)) as connection:
        assert connection.execute("SELECT table_name FROM duckdb_tables()").fetchall() == [("mine",)]


def test_flipped_bytes_are_an_archive_error(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "a.duckdb"
    path.write_bytes(whole)
    with duckdb.connect(str(path), read_only=True) as connection:
        segments = "FROM pragma_storage_info('evaluations') WHERE column_name = 'source' AND segment_type = 'VARCHAR'"
        block = connection.execute(f"SELECT max(block_id) {segments}").fetchall()[0][0]
    middle = 12288 + 262144 * block + 5000
    path.write_bytes(whole[:middle] + bytes(200_000) + whole[middle + 200_000 :])
    with pytest.raises(ArchiveError) as caught, ProgramArchive.open(path, read_only=True) as archive:
        archive.evaluations("r1")
    assert "damaged" in caught.value.message and "\n" not in caught.value.message


# ------------------------------------------------------------------------------------------------------------ places


def test_a_missing_file_is_no_archive_to_read(tmp_path: Path) -> None:
    assert "no archive" in refusal(tmp_path / "a.duckdb", read_only=True).message
    with pytest.raises(ArchiveError, match="there is no archive"):
        open_for_reading(tmp_path / "a.duckdb")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_archive(tmp_path: Path) -> None:
    assert "is a folder" in refusal(tmp_path).message


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "a.duckdb"
    with pytest.raises(ArchiveError, match="does not exist") as caught:
        ProgramArchive.open(path)
    assert "mkdir -p" in caught.value.hint


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Root may write everywhere: become nobody for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that nobody can reach: pytest's own are its user's alone, and so may /tmp be."""
    public = next((place for place in ("/tmp", "/var/tmp", "/dev/shm") if Path(place).stat().st_mode & 0o001), None)
    with tempfile.TemporaryDirectory(dir=public) as folder:
        Path(folder).chmod(0o755)
        yield Path(folder).resolve()
        Path(folder).chmod(0o755)


def test_a_read_only_folder_is_named(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    with ordinary_user(), pytest.raises(ArchiveError, match=re.escape(f"the folder {open_folder} is read-only")) as e:
        ProgramArchive.open(open_folder / "a.duckdb")
    assert "--archive" in e.value.hint


def test_an_archive_in_a_read_only_folder_can_be_read(open_folder: Path) -> None:
    filled(open_folder / "a.duckdb", [evaluation()]).close()
    (open_folder / "a.duckdb").chmod(0o444)
    open_folder.chmod(0o555)
    with ordinary_user():
        with open_for_reading(open_folder / "a.duckdb") as archive:
            assert len(archive.evaluations("r1")) == 1
        with pytest.raises(ArchiveError, match=r"a\.duckdb is read-only"):
            ProgramArchive.open(open_folder / "a.duckdb")


def test_an_unreadable_archive_is_named(open_folder: Path) -> None:
    filled(open_folder / "a.duckdb", []).close()
    (open_folder / "a.duckdb").chmod(0o200 if os.geteuid() != 0 else 0o000)
    with ordinary_user(), pytest.raises(ArchiveError, match="may not be read"):
        ProgramArchive.open(open_folder / "a.duckdb", read_only=True)


# -------------------------------------------------------------------------------------------------------- full disk

FULL_DISK = """
import os, resource, sys
sys.path.insert(0, sys.argv[2])
from archive_records import evaluation, run
from db import checkpoints
from db.archive import ProgramArchive
from db.errors import ArchiveError

checkpoints.LOG_BYTES = int(sys.argv[4])
archive = ProgramArchive.open(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
for n in range(1000):
    try:
        archive.insert([evaluation(n, source=f"def kernel_function(x): '{os.urandom(20000).hex()}'")])
    except ArchiveError as error:
        print("refused:", error.message, "|", error.hint)
        break
    print("stored", flush=True)
try:
    archive.insert([evaluation(5000)])
except ArchiveError as error:
    print("refused again:", error.message, "|", error.hint)
os._exit(0)
"""


@pytest.mark.parametrize(("n_bytes", "n_log_bytes"), [(600_000, 1 << 26), (3_000_000, 100_000)])
def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path, n_bytes: int, n_log_bytes: int) -> None:
    path = tmp_path / "a.duckdb"
    command = [sys.executable, "-c", FULL_DISK, str(path), str(FOLDER), str(n_bytes), str(n_log_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    lines = done.stdout.splitlines()
    refused = next((line for line in lines if line.startswith("refused:")), done.stderr)
    assert "no space left" in refused and "evolve resume" in refused
    with ProgramArchive.open(path) as archive:
        assert len(archive.evaluations("r1")) >= lines.count("stored") > 3
        assert archive.insert([evaluation(7000)]) == 1
