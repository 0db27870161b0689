"""Batches through the real sandbox and the real job, with stand-ins for ncu and for what needs a GPU."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from db.profile import Profile
from evaluators.profiling import batch, profiler, progress
from evaluators.profiling.batch import Source
from evaluators.profiling.ncu import explain
from evaluators.profiling.profiler import Profiler
from evaluators.sandbox import Zygote

WORKER = "tests.support.profiled_worker"
PROVISIONAL = Profile(source="compiled", memory_sol_pct=50.0, spill_bytes=8)


class Gpu:
    """A lock that remembers what was done with it."""

    def __init__(self) -> None:
        self.history: list[str] = []

    def acquire(self) -> None:
        self.history.append("acquire")

    def release(self) -> None:
        self.history.append("release")


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote(interpret=False, preload=["evaluators.profiling.job"]) as started:
        if started.isolation != "namespaces":
            pytest.skip("this machine allows no namespaces")
        yield started


@contextlib.contextmanager
def no_inputs() -> Iterator[dict[str, Any]]:
    yield {}


def ncu_in(folder: Path, says: str = "") -> str:
    """A command that behaves like ncu; with `says` it complains so and writes no report."""
    script = folder / "ncu"
    options = f"--says {shlex.quote(says)}" if says else ""
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m tests.support.ncu_stand_in {options} "$@"\n')
    script.chmod(0o755)
    return str(script)


def profile(zygote: Zygote, ncu: str, sources: list[str], gpu: Gpu | None = None) -> list[Profile]:
    found = Profiler(zygote, gpu or Gpu(), no_inputs, ncu=ncu, worker=WORKER)
    return found.profile([Source(s, "kernel_function") for s in sources], [PROVISIONAL] * len(sources))


def test_each_program_of_a_batch_gets_its_own_launches(zygote: Zygote, tmp_path: Path):
    gpu = Gpu()
    first, second, third = profile(zygote, ncu_in(tmp_path), ["a b", "c", "d d d"], gpu)
    assert [[k.kernel for k in p.kernels] for p in (first, second, third)] == [["a", "b"], ["c"], ["d", "d", "d"]]
    assert all(p.source == "ncu" and p.note == "" for p in (first, second, third))
    assert third.duration_us == pytest.approx(3 * 63.36) and first.memory_sol_pct == pytest.approx(79.68)
    assert first.rules and first.stalls
    assert gpu.history == ["acquire", "release"]


def test_a_program_that_raises_keeps_what_it_had_and_the_others_get_counters(zygote: Zygote, tmp_path: Path):
    good, bad, other = profile(zygote, ncu_in(tmp_path), ["a", "b raise", "c"])
    assert (good.source, other.source) == ("ncu", "ncu") and other.kernels[0].kernel == "c"
    assert bad.model_copy(update={"note": "", "gpu_s": 0.0}) == PROVISIONAL
    assert good.gpu_s == bad.gpu_s > 0
    assert "failed under the profiler: ValueError: it does not like this" in bad.note


def test_ranges_of_its_own_give_a_program_no_launches_of_another(zygote: Zygote, tmp_path: Path):
    posing = "b push:evolve-program-0 c pop push:evolve-program-0123456789abcdef-0 d"
    first, second, third = profile(zygote, ncu_in(tmp_path), ["a", posing, "e pop f"])
    assert [[k.kernel for k in p.kernels] for p in (first, second, third)] == [["a"], ["b", "c", "d"], ["e"]]


def test_a_program_without_launches_is_told_so(zygote: Zygote, tmp_path: Path):
    good, idle = profile(zygote, ncu_in(tmp_path), ["a", ""])
    assert good.source == "ncu"
    alone = profile(zygote, ncu_in(tmp_path), [""])[0]
    assert idle.source == alone.source == "compiled" and idle.note == alone.note == "no kernel was launched"


def test_a_report_that_names_no_program_is_refused(zygote: Zygote, tmp_path: Path):
    profiles = profile(zygote, ncu_in(tmp_path), ["pop a", "pop b"])
    assert all("of its 2 launches, none is in the NVTX range of a program" in p.note for p in profiles)
    assert [p.source for p in profiles] == ["compiled"] * 2


def test_a_program_whose_time_another_used_up_is_tried_again(zygote: Zygote, tmp_path: Path):
    gpu = Gpu()
    first, second = profile(zygote, ncu_in(tmp_path), ["a", "b slow"], gpu)
    assert [[k.kernel for k in p.kernels] for p in (first, second)] == [["a"], ["b", "slow"]]
    assert gpu.history == ["acquire", "release"] * 2


def test_a_full_batch_has_the_gpu_for_two_seconds_a_program_at_most():
    assert batch.seconds_for(profiler.MAX_BATCH) + batch.OVERRUN_S <= 2.0 * profiler.MAX_BATCH
    assert batch.seconds_for(1) == batch.MOST_SECONDS


def test_what_a_worker_is_to_do_is_gone_once_it_knows(tmp_path: Path):
    (tmp_path / progress.BATCH).write_text('{"nonce": "n"}')
    assert progress.take_batch(tmp_path) == {"nonce": "n"} and not list(tmp_path.iterdir())


@pytest.mark.parametrize("deed", ["b die", "load-die"])
def test_a_program_that_ends_the_process_does_not_take_the_others_with_it(zygote: Zygote, tmp_path: Path, deed: str):
    gpu = Gpu()
    first, bad, third = profile(zygote, ncu_in(tmp_path), ["a", deed, "c"], gpu)
    assert first.kernels[0].kernel == "a" and third.kernels[0].kernel == "c"
    assert bad.source == "compiled" and "ended the process" in bad.note
    assert gpu.history == ["acquire", "release"] * (2 if deed == "b die" else 1)


def test_tries_are_bounded(zygote: Zygote, tmp_path: Path):
    found = profile(zygote, ncu_in(tmp_path), ["die", "die", "die", "die", "a"])
    assert [p.source for p in found] == ["compiled"] * 5
    assert "turn did not come" in found[4].note


def test_a_program_that_takes_too_long_gives_the_gpu_back(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name, value in (("MOST_SECONDS", 0.5), ("START_S", 0.0), ("SECONDS_PER_PROGRAM", 0.2)):
        monkeypatch.setattr(batch, name, value)
    for name, value in (("OVERRUN_S", 0.5), ("WRITE_S", 1.0)):
        monkeypatch.setattr(batch, name, value)
    gpu = Gpu()
    first, slow = profile(zygote, ncu_in(tmp_path), ["a", "b sleep"], gpu)
    assert slow.source == "compiled" and "ended the process" in slow.note
    assert first.source == "ncu"  # the worker was killed, not ncu
    assert gpu.history == ["acquire", "release"]


@pytest.mark.parametrize(
    ("says", "reason", "lasts"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "NVreg_RestrictProfilingToAdminUsers", True),
        ("==ERROR== Profiling failed because a driver resource was unavailable.", "another tool", False),
        ("==ERROR== Cuda driver is not compatible with Nsight Compute.", "does not fit the driver", True),
        ("==ERROR== Something that nobody has seen before", "Something that nobody has seen", False),
    ],
)
def test_complaints_become_a_note_and_lasting_ones_are_asked_once(
    zygote: Zygote, tmp_path: Path, says: str, reason: str, lasts: bool
):
    found = Profiler(zygote, Gpu(), no_inputs, ncu=ncu_in(tmp_path, says), worker=WORKER)
    assert found.availability() == ""
    answer = found.profile([Source("a", "f")], [PROVISIONAL])[0]
    assert answer.source == "compiled" and reason in answer.note and answer.memory_sol_pct == 50.0
    assert (reason in found.availability()) is lasts


def test_a_profiler_that_never_has_an_answer_is_not_asked_for_ever(zygote: Zygote, tmp_path: Path):
    found = Profiler(zygote, Gpu(), no_inputs, ncu=ncu_in(tmp_path, "==ERROR== busy"), worker=WORKER)
    for _ in range(profiler.MAX_FAILURES):
        assert found.availability() == ""
        found.profile([Source("a", "f")])
    assert "busy" in found.availability()


def test_without_ncu_or_room_on_the_gpu_there_is_a_profile_with_a_reason(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(profiler, "find_ncu", lambda: None)
    nothing = Profiler(zygote, Gpu(), no_inputs).profile([Source("a", "f")])
    assert nothing == [Profile(source="none", note="ncu (Nsight Compute) is not installed")]

    @contextlib.contextmanager
    def full() -> Iterator[dict[str, Any]]:
        raise RuntimeError("CUDA out of memory")
        yield {}

    found = Profiler(zygote, Gpu(), full, ncu=ncu_in(tmp_path), worker=WORKER).profile([Source("a", "f")])
    assert "CUDA out of memory" in found[0].note


def test_more_programs_than_a_batch_holds_take_several(zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(profiler, "MAX_BATCH", 2)
    found = profile(zygote, ncu_in(tmp_path), ["a", "b", "c"])
    assert [p.dominant for p in found] == ["a", "b", "c"]


def test_a_silent_ncu_is_said_to_be_silent():
    assert "said nothing" in explain("").words


def test_the_sandbox_of_the_job_is_left_empty(zygote: Zygote, tmp_path: Path):
    profile(zygote, ncu_in(tmp_path), ["a"])
    assert not list(zygote.folder.glob("child-*"))
