"""`evolve run model.py` on a GPU, as people type it: taken apart, searched, put together, judged, delivered."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.evolving import evolve, rows

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(600)]

MODULE = """
import torch
import torch.nn as nn

n_rows = 4096


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(2048)

    def forward(self, x):
        p = torch.softmax(self.norm(x), -1)
        return p, -(p * torch.log(p + 1e-9)).sum(-1)


def get_inputs():
    return [torch.randn(n_rows, 2048)]


def get_init_inputs():
    return []
"""
PRODUCTS = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4096, 4096)

    def forward(self, x):
        return self.linear(self.linear(x))


def get_inputs():
    return [torch.randn(4096, 4096)]


def get_init_inputs():
    return []
"""
NEEDLESS = """
import torch
import torch.nn as nn

size = 2048


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(size, size)

    def forward(self, scales, x):
        return torch.diag(scales) @ x, self.linear(x).sum(-1)


def get_inputs():
    return [torch.randn(size), torch.randn(size, size)]


def get_init_inputs():
    return []
"""
RUN = ("--islands", "2", "--archive", "a.duckdb", "--out", "out")
# the delivered file beside the original, in a process that imports nothing of this project
ALONE = """
import importlib.util, sys, torch

def loaded(name):
    spec = importlib.util.spec_from_file_location(name.partition(".")[0], name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

original = loaded("mine.py")
model = original.Model().cuda().eval()
delivered = loaded("out/best.py").ModelNew().cuda().eval()
delivered.load_state_dict(model.state_dict())
inputs = [x.cuda() for x in original.get_inputs()]
with torch.no_grad():
    for one, other in zip(delivered(*inputs), model(*inputs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
        assert one.stride() == other.stride()
assert not any(name.split(".")[0] in ("evaluators", "evolve", "db", "islands") for name in sys.modules)
"""


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "out" / "summary.json").read_text())
    return found


def test_a_module_is_improved_and_the_file_runs_by_itself(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    ended = evolve("run", "mine.py", *RUN, "--evaluations", "40", cwd=tmp_path, limit_s=500)
    assert ended.code == 0, ended.err
    told = summary(tmp_path)
    assert told["outcome"] in ("optimized", "matched", "fallback") and told["root_cause"] in (None, "speed gate"), told
    assert told["parts"] and all(part["n_judged"] for part in told["parts"] if part["run_id"]), told
    assert sum(part["n_judged"] for part in told["parts"]) <= 40 + 2 * len(told["parts"])
    judged = rows("SELECT count(*) AS n FROM evaluations WHERE operator = 'stitch'", archive=tmp_path / "a.duckdb")
    assert judged[0]["n"] == sum(bool(attempt["program_id"]) for attempt in told["attempts"])
    assert all(attempt["is_correct"] for attempt in told["attempts"]), told["attempts"]
    assert (told["outcome"] == "optimized") == (tmp_path / "out" / "best.py").exists()
    if told["outcome"] == "optimized":
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        command = [sys.executable, "-P", "-c", ALONE]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_a_module_that_asks_for_needless_work_is_delivered_without_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(NEEDLESS)
    ended = evolve("run", "mine.py", *RUN, "--evaluations", "12", cwd=tmp_path, limit_s=500)
    assert ended.code == 0, ended.err
    told = summary(tmp_path)
    assert len(told["left_out"]) == 2 and "left out: a product with a diagonal matrix" in ended.out, told
    assert told["outcome"] == "optimized" and told["speedup"] > 2, told
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-P", "-c", ALONE]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_module_of_products_falls_back_with_its_cause(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PRODUCTS)
    ended = evolve("run", "mine.py", *RUN, cwd=tmp_path, limit_s=500)
    assert ended.code == 0, ended.err
    told = summary(tmp_path)
    assert told["outcome"] == "fallback" and told["root_cause"] in ("GEMM-dominant", "no Triton kernels"), told
    assert "keep the baseline" in ended.out and not (tmp_path / "out" / "best.py").exists()
