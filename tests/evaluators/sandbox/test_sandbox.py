"""Zygote and children as an honest judge uses them, and what is left when one of them is killed."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from evaluators.sandbox import ChildEnded, SandboxError, Zygote, ZygoteEndedError
from evaluators.sandbox.tensors import open_shared, share
from evaluators.sandbox.workspace import RunFolder
from tests.evaluators.sandbox.aftermath import JOBS, living_in, wait_until_dead


def test_messages_go_both_ways(zygote: Zygote) -> None:
    with zygote.spawn(JOBS + "converse", {}, deadline_s=20) as child:
        for number in (1, 21):
            child.send({"number": number})
            assert child.receive(20) == {"double": 2 * number}
        with pytest.raises(TimeoutError):
            child.receive(0.01)
        with pytest.raises(TimeoutError):
            child.wait(0.01)
        child.send({})
        with pytest.raises(ChildEnded, match="ok"):
            child.receive(20)


def test_a_child_sees_only_itself(zygote: Zygote) -> None:
    with zygote.spawn(JOBS + "describe_surroundings", {}, deadline_s=20) as child:
        answer = child.receive(20)
    workspace = str(child.workspace)
    assert answer["cwd"] == workspace
    for name in ("HOME", "TMPDIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        assert answer["environment"][name].startswith(workspace)
    assert answer["threads"] == 1
    assert len(answer["fds"]) <= 6  # three streams, the channel, the report, and the listing itself
    if zygote.isolation == "namespaces":
        assert answer["pids"] == [1, answer["pid"]]


def test_no_environment_holds_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "SOME_API_KEY", "s3cret-value")
    with Zygote(interpret=True) as zygote, zygote.spawn(JOBS + "read_keys", {}, deadline_s=20) as child:
        text = child.receive(20)["environments"]
    assert "TRITON_CACHE_DIR" in text
    assert "SOME_API_KEY" not in text
    assert "s3cret-value" not in text


def test_the_zygote_has_one_thread_and_children_may_compute_in_parallel(zygote: Zygote) -> None:
    assert zygote.n_threads == 1
    with zygote.spawn(JOBS + "multiply_in_parallel", {}, deadline_s=20) as child:
        assert child.receive(20) == {"done": True}


def test_orphans_that_have_ended_do_not_count(zygote: Zygote) -> None:
    with zygote.spawn(JOBS + "idle_with_orphans", {}, deadline_s=20) as child:
        n_pids = child.receive(20)["pids"]
        assert child.wait().kind == "ok"
    assert zygote.isolation == "subreaper" or n_pids == 2


def test_a_zygote_that_compiles() -> None:
    source = "import triton\nimport triton.language as tl\n@triton.jit\ndef kernel(x):\n    tl.store(x, 1.0)\n"
    with Zygote(interpret=False) as zygote:
        assert zygote.n_threads == 1
        with zygote.spawn(JOBS + "compile_kernel", {"source": source}, deadline_s=60) as child:
            answer = child.receive(60)
    assert {"ttir", "ptx", "cubin"} <= set(answer["kinds"])
    assert answer["cached"] == 1


@pytest.mark.gpu
@pytest.mark.parametrize("isolation", ["namespaces", "subreaper"])
def test_children_make_their_own_cuda_context(isolation: str) -> None:
    with Zygote(interpret=False, isolation=isolation) as zygote:  # type: ignore[arg-type]
        children = [zygote.spawn(JOBS + "use_gpu", {}, deadline_s=120) for _ in range(2)]
        for child in children:
            assert child.receive(60) == {"sum": 4.0}
            assert child.receive(60)["libraries"] >= 1
            assert child.wait(60).kind == "ok"


def test_tensors_are_shared_and_cannot_be_truncated(zygote: Zygote) -> None:
    source = torch.arange(12, dtype=torch.float16).view(3, 4).t()
    (fd, spec), (result_fd, result_spec) = share(source), share(torch.zeros_like(source))
    specs = [spec.model_dump(), result_spec.model_dump()]
    with zygote.spawn(JOBS + "share", {"specs": specs}, deadline_s=20, fds=[fd, result_fd]) as child:
        assert child.wait().kind == "ok", child.wait()
    assert torch.equal(open_shared(result_fd, result_spec), source * 2)
    os.close(fd)
    os.close(result_fd)


def test_a_cache_is_handed_to_the_next_child_without_links_and_pipes(zygote: Zygote) -> None:
    with zygote.spawn(JOBS + "write_cache", {"keep_workspace": True}, deadline_s=20) as child:
        assert child.wait().kind == "ok"
    with zygote.spawn(JOBS + "read_cache", {"cache_from": str(child.cache_dir)}, deadline_s=20) as second:
        answer = second.receive(20)
    assert set(answer) == {"__grp__kernel.json", "kernel.cubin"}
    assert json.loads(answer["__grp__kernel.json"]) == {"child_paths": {"kernel.cubin": "HERE/kernel.cubin"}}
    assert child.workspace.exists()
    assert not second.workspace.exists()


def test_two_dozen_children_from_eight_threads(zygote: Zygote) -> None:
    answers: list[int] = []

    def work(first: int) -> None:
        children = [zygote.spawn(JOBS + "echo", {"n": first + i}, deadline_s=60) for i in range(3)]
        answers.extend(child.receive(60)["echo"]["n"] for child in children)
        for child in children:
            assert child.wait().kind == "ok"

    threads = [threading.Thread(target=work, args=(3 * i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(answers) == list(range(24))


def test_the_judge_can_stop_a_child(zygote: Zygote) -> None:
    with zygote.spawn(JOBS + "sleep", {}, deadline_s=300) as child:
        child.receive(20)
        assert len(living_in(child.workspace)) == 2
        child.kill()
        exit = child.wait(5)
    assert (exit.kind, exit.detail) == ("killed", "stopped by the judge")
    assert not living_in(child.workspace)


def test_closing_a_zygote_ends_its_children() -> None:
    zygote = Zygote(interpret=True)
    child = zygote.spawn(JOBS + "sleep", {}, deadline_s=300)
    child.receive(20)
    start = time.monotonic()
    zygote.close()
    assert time.monotonic() - start < 15
    assert child.wait(5).kind == "killed"
    assert not living_in(zygote.folder)
    assert not zygote.folder.exists()
    zygote.close()
    with pytest.raises(SandboxError, match="the zygote has ended"):
        zygote.spawn(JOBS + "echo", {}, deadline_s=20)


@pytest.mark.parametrize("isolation", ["namespaces", "subreaper"])
def test_a_killed_zygote_takes_its_children_along(isolation: str) -> None:
    with Zygote(interpret=True, isolation=isolation) as zygote:  # type: ignore[arg-type]
        child = zygote.spawn(JOBS + "sleep", {}, deadline_s=300)
        child.receive(20)
        os.kill(zygote.pid, signal.SIGKILL)
        assert (child.wait(5).kind, child.wait().detail) == ("killed", "the zygote has ended")
        assert not living_in(zygote.folder)
        with pytest.raises(SandboxError, match="the zygote has ended") as error:
            zygote.spawn(JOBS + "echo", {}, deadline_s=20)
        assert "start a new one" in error.value.hint


def test_a_zygote_that_renews_itself_says_whose_child_it_took_along_and_takes_the_next_job() -> None:
    with Zygote(interpret=True, renews=True) as zygote:
        first, folder = zygote.pid, zygote.folder
        child = zygote.spawn(JOBS + "sleep", {}, deadline_s=300)
        child.receive(20)
        os.kill(first, signal.SIGKILL)
        with pytest.raises(ZygoteEndedError, match="while a candidate was in its child"):
            child.receive(20)
        assert child.is_orphaned
        with zygote.spawn(JOBS + "sleep", {}, deadline_s=300) as child:
            child.receive(20)
            assert zygote.pid != first and not folder.exists() and not child.is_orphaned
    with pytest.raises(ZygoteEndedError, match="the zygote has ended"):
        zygote.spawn(JOBS + "sleep", {}, deadline_s=20)


class KilledMeanwhile(Zygote):
    """Is killed, and replaced by another thread, after it made the folder of the first job."""

    is_through = False

    def _make_workspace(self, cache_from: str | None) -> Path:
        workspace, dead = super()._make_workspace(cache_from), self._process
        if not self.is_through:
            self.is_through = True
            dead.kill()
            dead.wait()
            self._renew(dead, ZygoteEndedError("killed"))
        return workspace


def test_a_job_whose_folder_went_with_its_zygote_is_given_another() -> None:
    with (
        KilledMeanwhile(interpret=True, renews=True) as zygote,
        zygote.spawn(JOBS + "sleep", {}, deadline_s=300) as child,
    ):
        child.receive(20)
        assert not child.is_orphaned and child.workspace.is_relative_to(zygote.folder)


@pytest.mark.parametrize("isolation", ["namespaces", "subreaper"])
def test_nothing_outlives_a_killed_judge(isolation: str) -> None:
    command = [sys.executable, "-m", "tests.evaluators.sandbox.judge", isolation, "sleep"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as judge:
        assert judge.stdout is not None
        folder, *pids = judge.stdout.readline().split()
        n_alive = len(living_in(Path(folder)))
        judge.kill()
    assert n_alive == 6
    assert not wait_until_dead(Path(folder), 5)
    end = time.monotonic() + 5
    alive = [Path("/proc", pid) for pid in pids]
    while time.monotonic() < end and any(path.exists() for path in (*alive, Path(folder))):
        time.sleep(0.02)
    assert len(pids) == 2 and not any(path.exists() for path in alive)
    assert not Path(folder).exists()


def test_folders_that_nobody_locks_are_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    abandoned = tmp_path / "triton-evolve-zygote-gone"
    abandoned.mkdir()
    (abandoned / "lock").touch()
    first = RunFolder()
    assert not abandoned.exists()
    second = RunFolder()
    assert first.path.exists()
    for folder in (first, second):
        folder.remove()
    assert not list(tmp_path.iterdir())


def test_a_folder_is_never_swept_while_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zygotes that start at the same time sweep each other's folders."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def n_lost(n_folders: int) -> int:
        lost = 0
        for _ in range(n_folders):
            folder = RunFolder()
            lost += not folder.path.exists()
            folder.remove()
        return lost

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(n_lost, [100] * 8)) == 0


def test_the_judges_side_imports_no_torch() -> None:
    code = "import sys, evaluators.sandbox; sys.exit('torch' in sys.modules or 'triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_a_zygote_that_cannot_start_says_why() -> None:
    with pytest.raises(SandboxError, match="No module named 'no_such_module'"):
        Zygote(interpret=True, preload=["no_such_module"])


def test_an_unknown_job_is_an_error_of_the_child(zygote: Zygote) -> None:
    with zygote.spawn(JOBS + "no_such_job", {}, deadline_s=20) as child:
        exit = child.wait()
    assert exit.kind == "error"
    assert "no_such_job" in exit.detail
