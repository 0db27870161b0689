"""What is found out, and made, before a run starts anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from db.errors import ArchiveError
from db.records import DeviceKind
from evolve.beside import beside
from evolve.config import load_config
from evolve.preflight import check_start, wait_for_archive


def start(archive: Path, out: Path) -> None:
    options = {"archive": str(archive), "out": str(out), "device": "cpu"}
    check_start(load_config("softmax", options=options), DeviceKind.CPU)


def test_the_folder_of_the_archive_is_made(tmp_path: Path) -> None:
    archive = tmp_path / "lab" / "november" / "softmax.duckdb"
    start(archive, tmp_path / "out")
    assert archive.is_file()


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "lab").write_text("a note")
    with pytest.raises(ArchiveError, match="cannot") as caught:
        start(tmp_path / "lab" / "softmax.duckdb", tmp_path / "out")
    assert "--archive" in caught.value.hint


HOLDER = """
import sys, time
from db.archive import ProgramArchive
archive = ProgramArchive.open(sys.argv[1])
print("held", flush=True)
sys.stdin.readline()
archive.close()
"""


def test_an_archive_that_a_killed_run_holds_is_waited_for_later(tmp_path: Path) -> None:
    archive = tmp_path / "a.duckdb"
    options = {"archive": str(archive), "out": str(tmp_path / "out"), "device": "cpu"}
    config = load_config("softmax", options=options)
    command = [sys.executable, "-c", HOLDER, str(archive)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        assert check_start(config, DeviceKind.CPU, may_be_held=True) is False
        waiting = beside(lambda: wait_for_archive(str(archive), 60.0))
        with pytest.raises(TimeoutError):
            waiting.result(0.3)
        holder.stdin.write("\n")
        holder.stdin.flush()
        waiting.result(30)
    assert check_start(config, DeviceKind.CPU, may_be_held=True) is True


def test_what_goes_wrong_beside_is_raised_where_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "lab").write_text("a note")
    opening = beside(lambda: wait_for_archive(str(tmp_path / "lab" / "a.duckdb"), 0.0))
    with pytest.raises(ArchiveError):
        opening.result(30)
