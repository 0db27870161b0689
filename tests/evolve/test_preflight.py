"""What is found out, and made, before a run starts anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from db.errors import ArchiveError
from db.records import DeviceKind
from evolve.config import load_config
from evolve.preflight import check_start


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
