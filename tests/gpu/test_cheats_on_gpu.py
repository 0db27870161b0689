"""Cheats that only a GPU can tell, and honest twins, before the measuring judge."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from db.records import DeviceKind, Outcome
from evaluators.evaluator import Evaluator, EvaluatorSettings
from evaluators.opening import open_evaluator
from evaluators.problems import load_problem
from tests.evaluators.test_modelled import judge
from tests.support.corpus import Specimen, specimens

pytestmark = pytest.mark.gpu

ALSO = (
    *("cached_on_the_device", "ghost_hasattr", "ghost_printed", "reference_matmul_function"),
    *("stale_atomic", "stale_workspace"),
)
# a vendor's product that the compiled baseline calls too, with one kernel behind it
BESIDE_A_LIBRARY = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(out_ptr, other_ptr, n_elements, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    total = tl.load(out_ptr + offsets, mask=mask).to(tl.float32) + tl.load(other_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, total, mask=mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        half = a.shape[1] // 2
        {product}
        add_kernel[(triton.cdiv(out.numel(), 1024),)](out, other, out.numel(), BLOCK=1024)
        return out
"""
GHOST = "out, other = torch.mm(a, b), torch.zeros((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)"
HALVES = "out, other = torch.mm(a[:, :half], b[:half]), torch.mm(a[:, half:], b[half:])"
CHEATS = [s for s in specimens("cheats") if s.needs_gpu or s.name in ALSO]
HONEST = [s for s in specimens("honest") if s.problem in ("swiglu", "matvec", "matmul")]
PROBLEMS = sorted({s.problem for s in (*CHEATS, *HONEST)})


@pytest.fixture(scope="module", params=PROBLEMS)
def evaluator(request: pytest.FixtureRequest) -> Iterator[Evaluator]:
    with open_evaluator(load_problem(request.param), EvaluatorSettings(), DeviceKind.CUDA) as opened:
        yield opened


def of_problem(found: list[Specimen], evaluator: Evaluator) -> list[Specimen]:
    return [s for s in found if s.problem == evaluator.problem.name]  # type: ignore[attr-defined]


def test_cheats_are_refused_and_honest_twins_pass(evaluator: Evaluator) -> None:
    problem = evaluator.problem  # type: ignore[attr-defined]
    cheats, honest = of_problem(CHEATS, evaluator), of_problem(HONEST, evaluator)
    verdicts = {s.name: judge(evaluator, problem, s.source, s.name) for s in (*cheats, *honest)}
    for name, verdict in verdicts.items():
        print(f"\n{name}: {verdict.outcome} {verdict.reason} {verdict.latency}")
    accepted = [s.name for s in cheats if verdicts[s.name].outcome is Outcome.CORRECT]
    refused = {s.name: verdicts[s.name].reason for s in honest if not verdicts[s.name].is_correct}
    assert (accepted, refused) == ([], {})


@pytest.mark.parametrize("evaluator", ["matmul"], indirect=True)
def test_beside_a_library_kernels_must_matter(evaluator: Evaluator) -> None:
    problem = evaluator.problem  # type: ignore[attr-defined]
    ghost = judge(evaluator, problem, BESIDE_A_LIBRARY.format(product=GHOST), "ghost")
    halves = judge(evaluator, problem, BESIDE_A_LIBRARY.format(product=HALVES), "halves")
    assert "change nothing" in ghost.reason
    assert halves.is_correct, halves.reason
