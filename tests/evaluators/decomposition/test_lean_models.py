"""When a module without its needless work takes the place of the original: only where it answers the same."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from evaluators.decomposition.job import without_needless_work

WIDTH = 24


class Summed(nn.Module):
    """Sums over a product's outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, 40)
        self.register_buffer("calls", torch.zeros(()))
        self.n_calls = 0

    def forward(self, x: Tensor) -> Any:
        return self.layer(x).sum(-1)


class CountsInAnswer(Summed):
    def forward(self, x: Tensor) -> Any:
        self.n_calls += 1
        return super().forward(x), self.n_calls


class CountsInBuffer(Summed):
    def forward(self, x: Tensor) -> Any:
        self.calls += 1
        return super().forward(x) + self.calls


class Overfull(Summed):
    def forward(self, x: Tensor) -> Any:
        if not isinstance(x, FakeTensor):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().forward(x)


class KeepsMask(Summed):
    def forward(self, x: Tensor) -> Any:
        if not hasattr(self, "mask"):
            self.mask = torch.ones(WIDTH)
        return super().forward(x * self.mask)


class SharesMask(Summed):
    masks: ClassVar[dict[int, Tensor]] = {}

    def forward(self, x: Tensor) -> Any:
        if WIDTH not in self.masks:
            self.masks[WIDTH] = torch.ones(WIDTH)
        return super().forward(x * self.masks[WIDTH])


def made(kind: type[Summed]) -> tuple[nn.Module, list[Tensor]]:
    torch.manual_seed(0)
    return kind().eval().requires_grad_(False), [torch.randn(32, WIDTH)]


def test_a_module_that_answers_the_same_takes_its_place() -> None:
    model, inputs = made(Summed)
    found = without_needless_work(model, inputs)
    assert found is not None
    torch.testing.assert_close(found.model(*inputs), model(*inputs))


@pytest.mark.parametrize("kind", [CountsInAnswer, CountsInBuffer])
def test_one_that_was_traced_with_another_answer_does_not(kind: type[Summed]) -> None:
    assert without_needless_work(*made(kind)) is None


def test_one_whose_answers_do_not_fit_side_by_side_stays_as_it_is() -> None:
    assert without_needless_work(*made(Overfull)) is None


@pytest.mark.parametrize("kind", [KeepsMask, SharesMask])
def test_what_a_module_keeps_from_its_first_call_is_real(kind: type[Summed]) -> None:
    model, inputs = made(kind)
    found = without_needless_work(model, inputs)
    answer = model(*inputs)
    assert type(answer) is Tensor
    assert found is not None and type(found.model(*inputs)) is Tensor
