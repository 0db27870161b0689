"""What the doctor finds, on this machine and on made-up ones."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from evolve.cli.main import main
from evolve.doctor import Finding, Status, examine, is_profiling_restricted, probe_torch, shadows


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finding]:
    return {f.name: f for f in examine(tmp_path_factory.mktemp("doctor") / "evolve.duckdb")}


def test_nothing_keeps_a_run_from_starting_here(findings: dict[str, Finding]) -> None:
    assert [f for f in findings.values() if f.status is Status.FAIL] == []
    for name in ("python", "torch", "triton", "GPU", "ncu", "ray", "duckdb", "isolation", "archive"):
        assert findings[name].found


def test_every_finding_that_is_not_good_says_what_to_do(findings: dict[str, Finding]) -> None:
    assert all(f.advice for f in findings.values() if f.status is not Status.OK)


def test_packages_are_named_with_their_place(findings: dict[str, Finding]) -> None:
    home = Path(__file__).resolve().parents[2]
    for room in ("evolve", "islands", "evaluators", "db"):
        assert findings[f"package {room}"].found.startswith(str(home / room))


def test_torch_is_asked_in_its_own_process() -> None:
    import sys

    before = "torch" in sys.modules
    assert probe_torch()["triton"]
    assert ("torch" in sys.modules) == before


def test_a_package_in_the_way_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "db.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert tmp_path / "db.py" in shadows("db")
    assert shadows("no_such_package") == []


def test_a_shadowed_package_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from evolve.doctor import _packages

    (tmp_path / "islands").mkdir()
    (tmp_path / "islands" / "__init__.py").write_text("")
    monkeypatch.chdir(tmp_path)
    statuses = {f.name: f.status for f in _packages()}
    assert statuses["package islands"] is Status.WARN
    assert statuses["package db"] is Status.OK


@pytest.mark.parametrize(
    ("text", "restricted"), [("RmProfilingAdminOnly: 1\n", True), ("RmProfilingAdminOnly: 0\n", False)]
)
def test_the_permission_for_counters_is_read_from_the_driver(
    text: str, restricted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "params").write_text("EnableMSI: 1\n" + text)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert is_profiling_restricted(tmp_path / "params") is restricted
    assert is_profiling_restricted(tmp_path / "none") is False


def test_a_truncated_archive_is_a_failure_with_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = tmp_path / "broken.duckdb"
    archive.write_bytes(b"DUCK" * 100)
    with pytest.raises(SystemExit) as end:
        main(["doctor", "--archive", str(archive), "--json"])
    assert end.value.code == 1
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["archive"]["status"] == "fail" and rows["archive"]["advice"]
