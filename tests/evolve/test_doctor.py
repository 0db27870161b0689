"""What the doctor finds, on this machine and on made-up ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.runs import make_problem, make_run

from db.archive import ProgramArchive
from db.records import RunStatus
from evaluators.profiling.ncu import is_profiling_restricted
from evolve import doctor
from evolve.doctor import Finding, Status, describe_sandbox, examine_archive, probe_torch, shadows


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finding]:
    """All of them, as `evolve doctor --json` prints them."""
    archive = tmp_path_factory.mktemp("doctor") / "evolve.duckdb"
    command = [sys.executable, "-m", "evolve.cli.main", "doctor", "--archive", str(archive), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return {row["name"]: Finding.model_validate(row) for row in json.loads(done.stdout)}


def test_nothing_keeps_a_run_from_starting_here(findings: dict[str, Finding]) -> None:
    assert [f for f in findings.values() if f.status is Status.FAIL] == []
    for name in ("python", "torch", "triton", "GPU", "ncu", "ray", "duckdb", "isolation", "archive"):
        assert findings[name].found


def test_every_finding_that_is_not_good_says_what_to_do(findings: dict[str, Finding]) -> None:
    assert all(f.advice for f in findings.values() if f.status is not Status.OK)


def test_every_layer_of_the_sandbox_is_told(findings: dict[str, Finding]) -> None:
    for layer in ("own processes", "files", "devices", "network", "sockets", "shared memory", "System V", "Landlock"):
        assert findings[f"sandbox {layer}"].found


def test_a_layer_that_is_missing_is_a_warning_with_advice() -> None:
    layers = [
        {"name": "network", "is_active": True, "found": "no TCP", "advice": ""},
        {"name": "sockets", "is_active": False, "found": "the kernel has no filter", "advice": "take another kernel"},
    ]
    whole, network, sockets = describe_sandbox("subreaper", layers)
    assert (whole.status, network.status, sockets.status) == (Status.WARN, Status.OK, Status.WARN)
    assert "sockets" in whole.advice and "network" not in whole.advice
    assert (sockets.found, sockets.advice) == ("missing: the kernel has no filter", "take another kernel")
    assert next(describe_sandbox("namespaces", layers[:1])).status is Status.OK


def test_packages_are_named_with_their_place(findings: dict[str, Finding]) -> None:
    home = Path(__file__).resolve().parents[2]
    for room in ("evolve", "islands", "evaluators", "db"):
        assert findings[f"package {room}"].found.startswith(str(home / room))


def test_torch_is_asked_in_its_own_process() -> None:
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


ALL_BUT_SYS_ADMIN, ONLY_SYS_ADMIN = "000001ffffdfffff", "0000000000200000"


@pytest.mark.parametrize(
    ("admins_only", "capabilities", "restricted"),
    [
        pytest.param(1, ALL_BUT_SYS_ADMIN, True, id="root of a container without the capability"),
        pytest.param(1, "0000000000000000", True, id="a user"),
        pytest.param(1, ONLY_SYS_ADMIN, False, id="a user with the capability"),
        pytest.param(0, "0000000000000000", False, id="everybody may"),
    ],
)
def test_the_permission_for_counters_hangs_on_the_driver_and_the_capability(
    admins_only: int, capabilities: str, restricted: bool, tmp_path: Path
) -> None:
    params, status = tmp_path / "params", tmp_path / "status"
    params.write_text(f"EnableMSI: 1\nRmProfilingAdminOnly: {admins_only}\n")
    status.write_text(f"Name:\tpython\nCapPrm:\t000001ffffffffff\nCapEff:\t{capabilities}\nCapAmb:\t0\n")
    assert is_profiling_restricted(params, status) is restricted


def test_without_the_file_of_the_driver_or_of_capabilities_the_driver_is_asked(tmp_path: Path) -> None:
    (tmp_path / "params").write_text("RmProfilingAdminOnly: 1\n")
    assert is_profiling_restricted(tmp_path / "none") is False
    assert is_profiling_restricted(tmp_path / "params", tmp_path / "none") is False
    assert is_profiling_restricted(tmp_path / "params", tmp_path / "params") is False


def test_who_may_not_read_counters_is_told_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_ncu", lambda: "/opt/ncu")
    monkeypatch.setattr(doctor, "is_profiling_restricted", lambda: True)
    finding = next(doctor._ncu(needed=True))
    assert finding.status is Status.WARN and "ERR_NVGPUCTRPERM" in finding.found
    for way in ("NVreg_RestrictProfilingToAdminUsers=0", "root", "CAP_SYS_ADMIN", "--cap-add", "developer.nvidia.com"):
        assert way in finding.advice


def test_a_truncated_archive_is_a_failure_with_advice(tmp_path: Path) -> None:
    archive = tmp_path / "broken.duckdb"
    archive.write_bytes(b"DUCK" * 100)
    (finding,) = examine_archive(archive)
    assert finding.status is Status.FAIL and finding.advice


def test_an_unfinished_run_is_told_with_how_to_resume(tmp_path: Path) -> None:
    problem = make_problem()
    with ProgramArchive.open(tmp_path / "a.duckdb") as archive:
        archive.add_problem(problem)
        archive.add_run(make_run(problem).model_copy(update={"status": RunStatus.INTERRUPTED}))
    (finding,) = examine_archive(tmp_path / "a.duckdb")
    assert "1 run" in finding.found and finding.advice.startswith("evolve resume r1a2b3c4")
