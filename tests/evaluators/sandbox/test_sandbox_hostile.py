"""What a candidate may try. Each ends as an exit with a reason, nothing of it survives, and the next job is served."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from evaluators.sandbox import ChildEnded, Exit, Limits, Zygote
from tests.evaluators.sandbox.aftermath import JOBS, living_in


def run(zygote: Zygote, job: str, *, deadline_s: float = 20, **payload: object) -> Exit:
    """Run a job to its end and check what must hold after any job."""
    with zygote.spawn(JOBS + job, payload, deadline_s=deadline_s) as child:
        exit = child.wait()
    assert not living_in(child.workspace)
    assert not child.workspace.exists()
    with zygote.spawn(JOBS + "echo", {"honest": 1}, deadline_s=20) as child:
        assert child.receive(20) == {"echo": {"honest": 1}}
        assert child.wait().kind == "ok"
    return exit


@pytest.mark.parametrize(
    ("job", "kind", "detail"),
    [
        ("loop", "timeout", "still running after 0.3 s"),
        ("crash", "signal", "SIGSEGV"),
        ("leave_politely", "exit", "SystemExit(3)"),
        ("daemonise", "ok", ""),
    ],
)
def test_it_ends_with_a_reason(zygote: Zygote, job: str, kind: str, detail: str) -> None:
    exit = run(zygote, job, deadline_s=0.3 if job == "loop" else 20)
    assert exit.kind == kind
    assert detail in exit.detail


@pytest.mark.parametrize("code", [0, 7])
def test_leaving_early_is_never_ok(zygote: Zygote, code: int) -> None:
    assert run(zygote, "leave", code=code) == Exit("exit", f"exited with code {code} before the job returned", "")


def test_an_exception_is_told_with_the_candidates_frames(zygote: Zygote) -> None:
    exit = run(zygote, "fail")
    assert exit.kind == "error"
    assert exit.detail.splitlines() == [
        "ValueError: wrong turn",
        "  at candidate.py:7 in <module>: outer()",
        "  at candidate.py:2 in outer: inner()",
        "  at candidate.py:5 in inner: raise ValueError('wrong turn')",
    ]


def test_a_gigabyte_of_text_is_cut(zygote: Zygote) -> None:
    exit = run(zygote, "print_gigabyte")
    assert (exit.kind, exit.detail) == ("killed", f"printed more than {8 * 1024**2} bytes")
    assert exit.output.startswith("x" * 100)
    assert len(exit.output) == 4096


def test_a_line_of_hopping_processes_is_killed(zygote: Zygote) -> None:
    assert run(zygote, "hop").kind == "ok"


def test_memory_is_bounded(zygote: Zygote) -> None:
    exit = run(zygote, "eat_memory", n_blocks=64)
    assert (exit.kind, exit.detail) == ("killed", "used more than 0.5 GiB of memory")


@pytest.mark.parametrize(
    ("n_files", "n_bytes", "detail"),
    [(60, 4 * 1024**2, "wrote more than 0.1 GiB to disk"), (5000, 1, "wrote more than 2000 files")],
)
def test_the_disk_is_bounded(zygote: Zygote, n_files: int, n_bytes: int, detail: str) -> None:
    exit = run(zygote, "fill_disk", n_files=n_files, n_bytes=n_bytes)
    assert (exit.kind, exit.detail) == ("killed", detail)


def test_who_takes_long_gives_way_to_others() -> None:
    with (
        Zygote(interpret=True, limits=Limits(patience_s=0.2)) as zygote,
        zygote.spawn(JOBS + "tell_priorities", {"seconds": 0.6}, deadline_s=20) as child,
    ):
        assert [child.receive(20)["nice"] for _ in range(2)] == [os.getpriority(os.PRIO_PROCESS, 0), 19]


def test_address_space_and_files_are_bounded() -> None:
    limits = Limits(address_space_bytes=2**35, file_bytes=2**20)
    with (
        Zygote(interpret=True, limits=limits) as zygote,
        zygote.spawn(JOBS + "exceed_rlimits", {}, deadline_s=20) as child,
    ):
        assert child.receive(20) == {"file": "File too large"}
        exit = child.wait()
    assert exit.kind == "error"
    assert exit.detail.startswith("MemoryError")


def test_a_fork_bomb_is_bounded(zygote: Zygote) -> None:
    exit = run(zygote, "fork_bomb", deadline_s=1.5)
    assert exit.kind in ("timeout", "killed")
    assert exit.detail in ("still running after 1.5 s", "ran more than 64 processes")


def test_files_outside_the_workspace_stay_as_they_are(zygote: Zygote, tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    paths = [tmp_path / "old", tmp_path / "new", zygote.folder / "libraries", zygote.folder / "lock"]
    with zygote.spawn(JOBS + "write_outside", {"paths": [str(p) for p in paths]}, deadline_s=20) as child:
        failures = child.receive(20)["failures"]
        assert child.wait().kind == "ok"
    assert len(failures) == len(paths)
    assert (tmp_path / "old").read_text() == "old"
    assert not (tmp_path / "new").exists()


def test_no_privilege_is_left(zygote: Zygote) -> None:
    with zygote.spawn(JOBS + "become_root", {}, deadline_s=20) as child:
        answer = child.receive(20)
    assert answer == {"remounted": False, "traced": False, "opened": []}


@pytest.mark.parametrize("data", ["ffffffff", "02000000" + b"{]".hex(), "02000000" + b"[]".hex()])
def test_a_malformed_message_ends_the_child(zygote: Zygote, data: str) -> None:
    with zygote.spawn(JOBS + "babble", {"bytes": data}, deadline_s=20) as child:
        with pytest.raises(ChildEnded) as ended:
            child.receive(20)
        assert ended.value.exit.kind == "error"
        assert "malformed message" in ended.value.exit.detail
        assert child.wait() == ended.value.exit
    assert not living_in(child.workspace)


@pytest.mark.parametrize("job", ["daemonise", "fork_bomb", "stay_inside"])
def test_who_is_not_root_is_isolated_too(job: str) -> None:
    apart = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
    command = [sys.executable, "-m", "tests.evaluators.sandbox.judge", "namespaces", job]
    answer = subprocess.run([*apart, *command], capture_output=True, text=True, timeout=60, check=False)
    if "unshare" in answer.stderr:
        pytest.skip("no user namespace to be had")
    ended, honest = answer.stdout.splitlines()
    assert ended in ("ok ", "killed ran more than 64 processes", "timeout still running after 2 s")
    assert honest == "ok ", answer.stderr


@pytest.mark.parametrize("isolation", ["namespaces", "subreaper"])
def test_killing_everyone_harms_only_itself(isolation: str) -> None:
    command = [sys.executable, "-m", "tests.evaluators.sandbox.judge", isolation, "kill_everyone"]
    apart = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]
    answer = subprocess.run([*apart, *command], capture_output=True, text=True, timeout=60, check=False)
    if "unshare" in answer.stderr:
        pytest.skip("no pid namespace to be had, and outside one this is too dangerous")
    assert answer.stdout.splitlines() == ["signal SIGKILL", "ok "], answer.stderr
