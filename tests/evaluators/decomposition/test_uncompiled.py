"""Modules that torch.compile refuses still get an answer: the baseline stays, and the reason is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from evaluators.decomposition import job
from evaluators.decomposition.capture import Captured, CapturedGraph
from evaluators.decomposition.classify import RootCause, whole_only
from evaluators.decomposition.job import made_of
from evaluators.decomposition.records import Decomposition
from tests.support.decompositions import decomposition_of


@torch.library.custom_op("evolve_tests::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return x * 2


@twice.register_fake
def _(x: Tensor) -> Tensor:
    raise RuntimeError("no shape is known")


class Twice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return twice(x).relu()


def test_a_module_that_cannot_be_compiled_keeps_its_baseline_with_the_reason(tmp_path: Path) -> None:
    model, problem = Twice().eval(), decomposition_of("lstm").problem
    found = Decomposition(problem=problem, **made_of(problem, model, model, [torch.ones(4)], "compile", tmp_path))
    assert found.graph is None and found.reason.startswith("torch.compile fails: TorchRuntimeError: RuntimeError")
    assert whole_only(found) == (RootCause.NO_KERNELS, found.reason)


def test_a_module_that_leaves_no_memory_to_take_it_apart_keeps_its_baseline_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler cannot run here; what it would have handed over cannot be looked at for want of memory."""

    def full(captured: Captured) -> CapturedGraph:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    monkeypatch.setattr(job, "capture", lambda *_: Captured([CapturedGraph("", {})], None, []))
    monkeypatch.setattr(job, "_only_graph", full)
    model, problem = Twice().eval(), decomposition_of("lstm").problem
    found = Decomposition(problem=problem, **made_of(problem, model, model, [torch.ones(4)], "compile", tmp_path))
    reason = "the GPU ran out of memory while the model was taken apart"
    assert found.graph is None and whole_only(found) == (RootCause.NOT_DECOMPOSED, reason)


def test_a_look_for_which_there_is_no_memory_finds_nothing_and_another_fault_is_raised() -> None:
    def full() -> int:
        raise torch.OutOfMemoryError("CUDA out of memory")

    def broken() -> int:
        raise ValueError("a bug")

    assert job._if_it_fits(full) is None and job._if_it_fits(lambda: 3) == 3
    with pytest.raises(ValueError, match="a bug"):
        job._if_it_fits(broken)
