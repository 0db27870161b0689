"""`evolve profile`: modelled for real on the CPU, and what it prints of counters that an H200 gave."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from db.measures import classify
from db.profile import Bottleneck
from db.records import DeviceKind
from evaluators.hardware import load_hardware
from evaluators.problems import load_problem, suite_problem
from evaluators.profiling.diagnosis import diagnose
from evaluators.profiling.profiler import Profiler
from evaluators.profiling.report import read_report
from evaluators.profiling.whole import combine
from evaluators.sandbox import Zygote
from evaluators.settings import EvaluatorSettings
from evolve.checking import candidate_of
from evolve.cli.main import main
from evolve.cli.profile import _as_json, _print
from evolve.profiling import ProfileResult, read_counters

SMALL = ("--device", "cpu", "--target", "h200", "--shape", "n_rows=512", "--shape", "n_cols=2048")
BROKEN = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return y\n"
DATA = Path(__file__).parents[1] / "data" / "ncu"


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    printed = capsys.readouterr()
    return int(end.value.code or 0), printed.out, printed.err


@pytest.fixture
def seed(tmp_path: Path) -> str:
    file = tmp_path / "seed.py"
    file.write_text(suite_problem("softmax").seeds[0])
    return str(file)


@pytest.mark.slow
def test_without_a_gpu_the_model_says_what_limits_a_program(seed: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "profile", seed, "--problem", "softmax", *SMALL)
    assert code == 0, err
    assert "the compiled kernels and the model, NVIDIA H200" in out
    assert "memory_sol_pct" in out and "techniques that address this" in out and "/reduction/sm_90" in out
    assert "kernels in launch order" not in out


@pytest.mark.slow
def test_json_has_profile_and_report(seed: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, err = call(capsys, "profile", seed, "-p", "softmax", *SMALL, "--json")
    answer = json.loads(out)
    assert answer["source"] == answer["report"]["source"] == answer["profile"]["source"] == "compiled", err
    assert answer["profile"]["duration_us"] > 0 and answer["report"]["techniques"]


@pytest.mark.slow
def test_a_program_that_cannot_be_profiled_is_a_negative_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "program.py"
    file.write_text(BROKEN)
    code, out, _ = call(capsys, "profile", str(file), "-p", "softmax", *SMALL)
    assert code == 1 and "no profile: " in out and len(out) > len("no profile: \n")


REFERENCE = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return VALUE


def get_inputs():
    return [torch.randn(64, 1000)]


def get_init_inputs():
    return []
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "value", [pytest.param("x * 2", id="modelled"), pytest.param("x + x[x > 0].sum()", id="not to be modelled")]
)
def test_a_broken_program_is_a_negative_answer_where_the_problem_has_no_first_program(
    value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(REFERENCE.replace("VALUE", value))
    program = tmp_path / "program.py"
    program.write_text(BROKEN)
    code, out, err = call(
        capsys, "profile", str(program), "-p", str(tmp_path / "mine.py"), "--device", "cpu", "--target", "h200"
    )
    assert code == 1, err
    assert "no profile: " in out and "reaches no @triton.jit kernel" in out and "no seed" not in out


def test_a_file_that_is_not_there_ends_with_2_and_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "profile", "no-such-file.py", "-p", "softmax")
    assert code == 2 and "give a file" in err


@pytest.fixture
def counted() -> ProfileResult:
    pages = [(DATA / f"two_kernels_{page}.csv").read_text() for page in ("details", "raw")]
    kernels = [launch.kernel for launch in read_report(*pages, nonce="")]
    profile = combine(kernels)
    tier = classify(profile.compute_sol_pct, profile.memory_sol_pct)
    report = diagnose(profile, "", (), "sm_90", tier)
    hardware = load_hardware("h200")
    return ProfileResult(
        problem="two", device=DeviceKind.CUDA, hardware=hardware, profile=profile, report=report, n_configurations=3
    )


def test_counters_are_shown_kernel_by_kernel_beside_the_whole(
    counted: ProfileResult, capsys: pytest.CaptureFixture[str]
) -> None:
    _print(counted)
    out = capsys.readouterr().out
    assert "memory bound (counters of Nsight Compute, NVIDIA H200)" in out and "3 configurations" in out
    lines = [line.split() for line in out[out.index("kernels in launch order") :].splitlines()]
    rows = {line[0]: line[1:] for line in lines if line}
    assert rows["sm"] == ["63.36", "21%", "28%", "80%", "3834", "70%", "38", "long_scoreboard"]
    assert rows["mm"][:2] == ["244.4", "79%"] and rows["whole"][:2] == ["307.7", "100%"]
    assert list(rows).index("sm") < list(rows).index("mm") < list(rows).index("whole")
    assert "CPIStall" in out and "25%" in out


def test_json_of_counters_keeps_every_kernel(counted: ProfileResult) -> None:
    answer = json.loads(json.dumps(_as_json(counted), allow_nan=False))
    assert [k["kernel"] for k in answer["profile"]["kernels"]] == ["sm", "mm"]
    assert answer["report"]["state"]["primary"] == "cache_bandwidth"


class NoGpu:
    def acquire(self) -> None: ...

    def release(self) -> None: ...


@contextlib.contextmanager
def no_inputs() -> Iterator[dict[str, Any]]:
    yield {}


@pytest.mark.slow
def test_counters_come_with_the_spills_that_only_the_compiler_knows(tmp_path: Path) -> None:
    problem = load_problem("softmax", sizes={"n_rows": 64, "n_cols": 8192})
    source = problem.seeds[0].replace("BLOCK = 1024", "BLOCK = 8192").replace("num_warps=4", "num_warps=1")
    candidate = candidate_of(0, source, problem, tmp_path / "program.py")
    ncu = tmp_path / "ncu"
    ncu.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m tests.support.ncu_stand_in --spills 4096 "$@"\n')
    ncu.chmod(0o755)
    with Zygote(interpret=False, preload=["evaluators.profiling.job"]) as zygote:
        if zygote.isolation != "namespaces":
            pytest.skip("this machine allows no namespaces")
        profiler = Profiler(zygote, NoGpu(), no_inputs, ncu=str(ncu), worker="tests.support.profiled_worker")
        result = read_counters(problem, [candidate], EvaluatorSettings(), profiler, load_hardware("h200"))
    assert result.profile.source == "ncu", result.profile.note
    assert result.profile.spill_bytes is not None and result.profile.spill_bytes > 100
    assert Bottleneck.SPILLS in (result.report.state.primary, result.report.state.secondary)
    assert "spill_bytes" in {figure.metric for figure in result.report.evidence}
