"""`evolve run` of a problem that holds no program: a model over real HTTP writes the first one, the search goes on."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from support.evolving import Ended, evolve, rows
from support.llm_server import Asked, LlmServer, Reply, answer

from db.live import open_for_reading
from db.records import Evaluation, Gate, Outcome

pytestmark = pytest.mark.slow

PROBLEM = """
import torch
import torch.nn as nn

n_rows = 4096

SMALL = {"n_rows": 2}


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x * 2) + 1


def get_inputs():
    return [torch.randn(n_rows, 1000)]


def get_init_inputs():
    return []
"""

PROGRAM = """
import torch
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, tl.maximum(x * 2.0, 0.0) + 1.0, mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256, num_warps=8)
        return y
"""
RUN = ("run", "mine.py", "--device", "cpu", "--archive", "a.duckdb", "--out", "out", "--set", "stop_at_roofline=1")


def quoted(source: str) -> Reply:
    return answer(f"CHANGE: one pass\n\n```python\n{source}\n```\n")


ANSWERS = [
    answer("I am sorry, I cannot help with kernels."),
    quoted(PROGRAM.replace("x * 2.0", "x * 3.0")),
    quoted(PROGRAM),
    answer("nothing more"),
]


def run(folder: Path, server: LlmServer, *options: str) -> Ended:
    (folder / "mine.py").write_text(PROBLEM)
    model = ("--model", f"openai/scripted,api_base={server.api_base},unpriced", "--set", "llm.in_flight=1")
    return evolve(*RUN, *model, *options, cwd=folder, OPENAI_API_KEY="sk-none")


def test_rubbish_then_a_wrong_kernel_then_a_right_one_founds_a_search(tmp_path: Path) -> None:
    with LlmServer(ANSWERS) as server:
        ended = run(tmp_path, server, "--islands", "1", "--evaluations", "8")
        asked = [one.body["messages"][-1]["content"] for one in server.asked]
    assert ended.code == 0, ended.err
    assert "baseline eager" in ended.out and "us modelled" in ended.out
    for part, said in zip(
        ("Write the first Triton program", "could not be used", "outside the tolerance"), asked, strict=False
    ):
        assert part in said

    wrong, first, *later = judged(tmp_path)
    assert (wrong.candidate.lineage.operator, wrong.verdict.outcome) == ("synthesize", Outcome.FAILED)
    assert first.candidate.lineage.model == "openai/scripted" and first.verdict.is_correct
    model = next(gate for gate in first.verdict.gates if gate.gate is Gate.MODEL)
    assert model.evidence["first_program"]["n_within"] >= 3
    assert first.verdict.latency is not None and first.verdict.latency.baseline_name == "eager"
    assert len(later) == 6 and all(not e.candidate.lineage.model and e.candidate.lineage.parents for e in later)

    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["replaces_baseline"] and summary["best_program"] in {e.candidate.program_id for e in later}
    checked = evolve("check", "out/best.py", "--problem", "mine.py", "--device", "cpu", cwd=tmp_path)
    assert checked.code == 0 and "over eager" in checked.out, checked.out + checked.err


def test_a_run_that_no_model_can_begin_ends_in_order(tmp_path: Path) -> None:
    def wrong_once(asked: Asked) -> Reply:
        return ANSWERS[1] if len(server.asked) == 1 else answer("I cannot help.", delay_s=0.5)

    with LlmServer(wrong_once) as server:
        ended = run(tmp_path, server, "--islands", "2", "--set", "search.stagnation_window=3")
        assert len(server.asked) >= 6
    assert ended.code == 0, ended.err
    assert "mine: keep the baseline, no first program was found" in ended.out
    (failed,) = judged(tmp_path)
    (ran,) = rows("SELECT status, stop_reason FROM runs", archive=tmp_path / "a.duckdb")
    assert failed.verdict.outcome is Outcome.FAILED and ran == {
        "status": "finished",
        "stop_reason": "no first program was found",
    }
    assert "<html" in (tmp_path / "out" / "report.html").read_text()


def judged(folder: Path) -> list[Evaluation]:
    """What a run's archive keeps, in order."""
    (run_id,) = rows("SELECT run_id FROM runs", archive=folder / "a.duckdb")
    with contextlib.closing(open_for_reading(folder / "a.duckdb")) as reader:
        return reader.evaluations(run_id["run_id"])
