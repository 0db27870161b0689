"""The figures of `python -m benchmarks.gpus`: from what a search noted to rates, silences and shares of linear."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest

from benchmarks.gpu_figures import (
    Plan,
    after_kills,
    busy_share,
    compared,
    figures_of,
    gpu_busy,
    longest_silence_s,
    rate_per_min,
    shares_of_linear,
    table,
)
from benchmarks.processes import REST, Family, roles_of
from benchmarks.victims import Process

PLAN = Plan("softmax", n_gpus=2, seconds=30.0, total_s=60.0)
RUN = {"run": "r", "hardware": "H200", "isolation": "namespaces", "baseline": "eager", "baselines_us": {"eager": 9.0}}


def judged(at: float, us: float | None = 5.0, *, is_new: bool = True) -> dict[str, Any]:
    said = {"id": f"c{at}", "is_new": is_new, "us": us, "reason": "", "seconds": {"timing": 0.5}}
    return {"at": at, "what": "judged", **said}


def call(actor: int, began: float, at: float, ending: str = "answered") -> dict[str, Any]:
    said = {"actor": actor, "method": "evaluate", "began": began, "ending": ending}
    return {"at": at, "what": "call", **said}


def line(gpus: int, per_min: float, **more: Any) -> dict[str, Any]:
    named = {"problem": "softmax", "device": "cuda", "cores_per_gpu": 16, "seconds": 60.0, "n_cores": 16 * gpus}
    return {"gpus": gpus, "per_min": per_min, "start_s": 1.0, "kills": [], **named, **more}


def test_a_rate_counts_what_comes_after_the_beginning() -> None:
    assert rate_per_min([0.0, 10.0, 20.0, 31.0], 0.0, 30.0) == pytest.approx(4.0)
    assert rate_per_min([1.0], 5.0, 5.0) == 0.0


def test_silence_begins_and_ends_with_the_time_that_is_looked_at() -> None:
    assert longest_silence_s([4.0, 1.0, 2.0], 0.0, 10.0) == 6.0
    assert longest_silence_s([4.0, 5.0], 0.0, 6.0) == 4.0
    assert longest_silence_s([], 2.0, 10.0) == 8.0


def test_calls_that_overlap_keep_an_evaluator_busy_once() -> None:
    assert busy_share([(0.0, 4.0), (1.0, 3.0), (2.0, 5.0), (8.0, 20.0)], 0.0, 10.0) == pytest.approx(0.7)
    assert busy_share([(-5.0, 2.0)], 0.0, 10.0) == pytest.approx(0.2)
    assert busy_share([], 0.0, 10.0) == 0.0


def test_a_search_is_measured_from_its_first_verdict_to_the_end_of_its_time() -> None:
    notes: list[dict[str, Any]] = [{"at": 100.0, "what": "started", **RUN}]
    notes += [judged(110.0, 8.0), call(0, 109.0, 110.0), judged(115.0, 9.0, is_new=False), call(1, 110.0, 120.0)]
    notes += [judged(120.0, 6.0), judged(131.0, 4.0), {"at": 140.0, "what": "ended", "busy": [0.5, 1.0]}]
    found = figures_of(notes, PLAN)
    assert (found["first_verdict_s"], found["window_s"]) == (10.0, 20.0)
    assert (found["verdicts"], found["duplicates"], found["per_min"], found["evaluated_per_min"]) == (3, 1, 6.0, 3.0)
    assert found["best"] == [(10.0, 8.0), (20.0, 6.0), (31.0, 4.0)]
    assert [one["busy"] for one in found["evaluators"]] == [0.0, 0.5]
    assert [one["silence_s"] for one in found["evaluators"]] == [20.0, 10.0]
    assert found["evaluators_busy"] == [0.5, 1.0]


def test_a_search_that_was_cut_off_is_measured_as_far_as_it_came() -> None:
    assert figures_of([], PLAN) == {"verdicts": 0}
    notes = [{"at": 100.0, "what": "started", **RUN}, judged(101.0), judged(103.0), call(0, 102.0, 104.0)]
    found = figures_of(notes, PLAN)
    assert (found["window_s"], found["per_min"], found["stop_reason"]) == (2.0, 30.0, "cut off")


def test_evaluators_that_died_in_no_call_are_the_others() -> None:
    notes = [judged(100.0), call(0, 99.0, 101.0, "died"), call(1, 100.0, 103.0), call(1, 103.0, 110.0)]
    found = after_kills([*notes, judged(104.0)], 2, [100.0, 105.0], 110.0)
    assert (found["others_silence_s"], found["others_busy"], found["silence_s"]) == (7.0, 1.0, 6.0)
    assert [one["n_died"] for one in found["evaluators"]] == [1, 0]


def test_what_was_acknowledged_is_looked_for_in_the_archive() -> None:
    rows = [("a", "p", ""), ("b", "q", ""), ("b", "q", ""), ("d", "p", "p"), ("r-confirm-1", "p", "")]
    found = compared(["a", "b", "c"], rows)
    assert found == {"acknowledged": 3, "stored": 5, "lost": 1, "twice": 1, "judged_anew": 1}


def test_the_share_of_linear_is_against_one_gpu_that_nobody_killed() -> None:
    killed = line(1, 10.0, kills=[{"kind": "island", "at_s": 20.0}])
    lines = [line(1, 90.0), line(1, 110.0), line(4, 360.0), killed, line(4, 360.0, cores_per_gpu=8)]
    assert shares_of_linear(lines, "per_min") == pytest.approx([0.9, 1.1, 0.9, 0.1, 1.0])
    assert shares_of_linear([killed, line(2, 0.0)], "per_min") == [None, None]
    assert "| 4 | 64 | 360 (90%) |" in table(lines)
    assert "| 1 (killed) | 16 | 10 (10%) |" in table(lines)


def test_how_busy_a_gpu_was_is_a_mean() -> None:
    assert gpu_busy("0, 50, 100\n1, 0, 5\n0, 100, 300\n[N/A], x\n") == {
        "0": {"busy": 0.75, "memory_mb": 300.0},
        "1": {"busy": 0.0, "memory_mb": 5.0},
    }


def test_what_an_evaluator_starts_is_counted_apart() -> None:
    tree = [(1, 0, ""), (2, 1, "raylet"), (3, 2, "ray::EvaluatorActor.evaluate"), (4, 3, "python -m zygote")]
    tree += [(5, 4, "python -m zygote"), (6, 2, "ray::IDLE"), (7, 6, "x")]
    roles = roles_of([Process(*one) for one in tree])
    assert [roles[pid] for pid in (1, 2, 3, 4, 5)] == [
        *("driver", REST, "evaluators", "below evaluators", "below evaluators")
    ]
    assert roles[6] == roles[7] == REST


def test_processor_time_is_added_up_from_look_to_look() -> None:
    burn = "import time\nprint('ready', flush=True)\ninput()\nend = time.process_time() + 0.3\n"
    burn += "while time.process_time() < end: pass\nprint('done', flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as one:
        assert one.stdin is not None and one.stdout is not None
        one.stdout.readline()
        family = Family(one.pid)
        family.begin()
        one.stdin.write("\n")
        one.stdin.flush()
        one.stdout.readline()
        family.look()
        time.sleep(0.05)
        family.look()
        family.weigh()
        found = family.figures()["driver"]
        one.stdin.write("\n")
    assert 0.25 < found["cpu_s"] < 0.45
    assert found["n"] == 1 and found["rss_mb"] > found["pss_mb"] > 1.0
