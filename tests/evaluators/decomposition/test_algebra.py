"""Modules without their needless work: what is left out, that the answer stays, and what is left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from evaluators.decomposition.algebra import NotExported, Simplified, simplified, triangles
from evaluators.decomposition.binding import argument_of
from tests.support.inductor import called

Forward = Callable[..., Any]


class Asked(nn.Module):
    """A layer, and a forward that is given."""

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.layer = nn.Linear(24, 40)
        self.bare = nn.Linear(24, 40, bias=False)
        self._forward = forward

    def forward(self, *inputs: Tensor) -> Any:
        return self._forward(self, *inputs)


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def without(forward: Forward, *inputs: Tensor) -> tuple[Simplified | None, float]:
    """The module without its needless work, which answers the same; and its multiplications over the original's."""
    return of_module(Asked(forward), *inputs)


def of_module(model: nn.Module, *inputs: Tensor) -> tuple[Simplified | None, float]:
    """`without` of a module that is there."""
    model = model.double().eval().requires_grad_(False)
    found = simplified(model, inputs)
    counts = []
    answers = []
    for module in (model, found.model if found else model):
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            answers.append(called(module, *inputs))
        counts.append(counter.get_total_flops())
    for one, other in zip(*answers, strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one, other)
    return found, counts[1] / max(1, counts[0])


DIAGONALS: dict[str, tuple[Forward, tuple[Tensor, ...]]] = {
    "left": (lambda _, v, b: torch.diag(v) @ b, (drawn(64), drawn(64, 32))),
    "right": (lambda _, v, b: torch.mm(b, v.diag()), (drawn(64), drawn(32, 64))),
    "stack": (lambda _, v, b: torch.diag_embed(v) @ b, (drawn(5, 8), drawn(5, 8, 16))),
    "stack, right": (lambda _, v, b: b @ torch.diag_embed(v), (drawn(5, 8), drawn(5, 16, 8))),
}


@pytest.mark.parametrize("name", DIAGONALS)
def test_a_product_with_a_diagonal_is_a_scaling(name: str) -> None:
    found, left = without(DIAGONALS[name][0], *DIAGONALS[name][1])
    assert found is not None and left == 0 and "diagonal" in found.left_out[0]


SUMS: dict[str, Forward] = {
    "outputs": lambda m, x: m.layer(x).sum(-1),
    "outputs kept": lambda m, x: m.bare(x).sum(2, keepdim=True),
    "mean of outputs": lambda m, x: m.layer(x).mean(-1, keepdim=True),
    "rows": lambda m, x: m.layer(x).sum(1),
    "mean of rows": lambda m, x: torch.relu(m.layer(x).mean(dim=(0, 1))),
    "both": lambda m, x: m.layer(x).sum((1, 2)),
    "all": lambda m, x: m.layer(x).mean(),
    "scaled": lambda m, x: 3.0 * (m.layer(x) / 2).sum(-1, keepdim=True),
    "matrices": lambda m, x: (x @ m.bare.weight.t()).sum(-1),
    "stacks": lambda m, x: (x @ x.transpose(1, 2)).sum(-1),
    "rows of stacks": lambda m, x: (x @ x.transpose(1, 2)).mean(1),
}


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_over_a_product_needs_no_whole_product(name: str) -> None:
    found, left = without(SUMS[name], drawn(4, 32, 24))
    assert found is not None and left <= 4 / 32 and " of a product" in found.left_out[0]


@pytest.mark.parametrize(
    ("forward", "shapes"),
    [
        (lambda m, x: (m.layer(x) + 1).sum(-1), [(32, 24)]),  # could be, is not known
        (lambda m, x: torch.relu(m.layer(x)).sum(-1), [(32, 24)]),
        (lambda m, x: (y := m.layer(x), y.sum(-1)), [(32, 24)]),  # it is needed anyway
        (lambda m, x: m.layer(x).sum(-1), [(8, 24)]),  # adding up the weights costs as much
        (lambda m, x: (x[:1] @ x.transpose(1, 2)).sum(0), [(4, 32, 24)]),  # rows of a stack that is used again
        (lambda m, x: m.layer(x).half().sum(-1), [(32, 24)]),
        (lambda _, a: torch.diag(a) @ a, [(16, 16)]),  # takes the diagonal of a matrix
        (lambda _, v, b: torch.diag(v, 1)[:, :16] @ b, [(16,), (16, 16)]),
        (lambda _, a, b, c: a @ b @ c, [(8, 16), (16, 32), (32, 64)]),  # in the right order
        (lambda _, a: a.sum(1), [(8, 2)]),
    ],
)
def test_what_is_needed_stays(forward: Forward, shapes: list[tuple[int, ...]]) -> None:
    assert without(forward, *(drawn(*shape) for shape in shapes))[0] is None


def test_half_precision_is_left_alone() -> None:
    model = Asked(lambda m, x: m.layer(x).sum(-1)).to(torch.bfloat16).eval()
    assert simplified(model, [torch.randn(32, 24, dtype=torch.bfloat16)]) is None


def test_reductions_over_one_element_are_none() -> None:
    def forward(_: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
        one = x.amax(1, keepdim=True)
        return torch.logsumexp(one, 1), one.mean(1, keepdim=True), one.max(1, keepdim=True)[0], one.min(1)[0]

    found, _ = without(forward, drawn(6, 8))
    assert found is not None and len(found.left_out) == 4
    code = str(found.model.code)  # type: ignore[attr-defined]
    assert "amax" in code and not any(name in code for name in ("logsumexp", "mean", "max.dim", "min.dim"))


def test_what_a_rule_leaves_another_one_finds() -> None:
    def forward(m: nn.Module, x: Tensor) -> Tensor:
        return torch.logsumexp(torch.max(m.layer(x).sum(1, keepdim=True), 1, keepdim=True)[0], 1, keepdim=True)

    found, left = without(forward, drawn(64, 24))
    assert found is not None and left == 0 and len(found.left_out) == 3


def test_products_go_in_the_order_that_takes_least() -> None:
    found, left = without(lambda _, a, b, c: a @ b @ c, drawn(64, 32), drawn(32, 64), drawn(64, 1))
    assert found is not None and left < 0.1
    found, left = without(lambda _, a, b, c: a @ (b @ c), drawn(1, 64), drawn(64, 32), drawn(32, 64))
    assert found is not None and left < 0.1


TRIANGLES: dict[str, tuple[Forward, float]] = {
    "lower half": (lambda _, a, b: torch.tril(a @ b), 0.6),
    "upper half": (lambda _, a, b: torch.triu(torch.mm(a, b)), 0.6),
    "lower matrices": (lambda _, a, b: torch.tril(torch.tril(a) @ torch.tril(b)), 0.45),
    "upper matrices": (lambda _, a, b: torch.triu(a) @ torch.triu(b), 0.45),
    "one lower matrix": (lambda _, a, b: torch.tril(a) @ b, 0.6),
}


@pytest.mark.parametrize("name", TRIANGLES)
@pytest.mark.parametrize("shape", [(64, 64, 64), (70, 50, 60), (50, 70, 90)])
def test_zeros_of_triangles_are_not_multiplied(
    name: str, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit, value in {"MIN_SIDE": 32, "SAVED": 0.9, "TILE": 1, "N_TILES": 1}.items():
        monkeypatch.setattr(triangles, limit, value)
    forward, most = TRIANGLES[name]
    found, left = without(forward, drawn(shape[0], shape[1]), drawn(shape[1], shape[2]))
    assert found is not None and "triangular" in found.left_out[0]
    assert left < (most if len(set(shape)) == 1 else 0.9)


class Convolved(nn.Module):
    """Convolutions, and a forward that is given."""

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.flat = nn.Conv2d(6, 16, 3, stride=2, padding=1, bias=False)
        self.deep = nn.Conv3d(6, 16, 3, padding="same")
        self.up = nn.ConvTranspose2d(6, 16, 3, stride=2, dilation=2, output_padding=1)
        self.line = nn.ConvTranspose1d(6, 16, 4, bias=False)
        self.cropped = nn.ConvTranspose2d(6, 16, 3, padding=1)
        self.grouped = nn.Conv2d(6, 18, 3, groups=2)
        self._forward = forward

    def forward(self, x: Tensor) -> Any:
        return self._forward(self, x)


CONVOLUTIONS: dict[str, tuple[Forward, tuple[int, ...], float]] = {
    "channels": (lambda m, x: m.flat(x).sum(1), (2, 6, 16, 16), 0.1),
    "channels kept": (lambda m, x: m.flat(x).mean(1, keepdim=True), (2, 6, 16, 16), 0.1),
    "channels and more": (lambda m, x: m.deep(x).mean((0, 1)), (2, 6, 8, 8, 8), 0.1),
    "transposed channels": (lambda m, x: m.cropped(x).sum(dim=1), (2, 6, 9, 9), 0.1),
    "positions": (lambda m, x: m.up(x).mean((2, 3), keepdim=True), (2, 6, 9, 9), 0.0),
    "positions of lines": (lambda m, x: m.line(x).sum(-1), (2, 6, 20), 0.0),
    "all": (lambda m, x: m.up(x).mean(), (2, 6, 9, 9), 0.0),
    "pooled": (lambda m, x: nn.functional.adaptive_avg_pool2d(m.up(x), 1).flatten(1), (2, 6, 9, 9), 0.0),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_sum_over_a_convolution_needs_no_whole_convolution(name: str) -> None:
    forward, shape, most = CONVOLUTIONS[name]
    found, left = of_module(Convolved(forward), drawn(*shape))
    assert found is not None and left <= most and " of a convolution" in found.left_out[0]


@pytest.mark.parametrize(
    "forward",
    [
        lambda m, x: m.cropped(x).sum((2, 3)),  # what is cropped does not count
        lambda m, x: m.flat(x).mean((2, 3)),
        lambda m, x: m.grouped(x).sum(1),
        lambda m, x: torch.relu(m.up(x)).mean((2, 3)),
        lambda m, x: (y := m.up(x), y.mean((2, 3))),
        lambda m, x: nn.functional.adaptive_avg_pool2d(m.up(x), 2),
        lambda m, x: m.up(x[0]).sum((1, 2)),  # one sample without a batch
    ],
)
def test_convolutions_that_are_needed_stay(forward: Forward) -> None:
    assert of_module(Convolved(forward), drawn(2, 6, 9, 9))[0] is None


def test_small_triangles_and_other_diagonals_stay() -> None:
    assert without(lambda _, a: torch.tril(a @ a), drawn(64, 64))[0] is None
    assert without(lambda _, a: torch.tril(a @ a, 1), drawn(1024, 1024).float())[0] is None


@pytest.mark.parametrize(("size", "is_cut"), [(1024, False), (2048, True), (4096, True)])
def test_triangles_are_cut_where_blocks_fill_a_gpu(size: int, is_cut: bool) -> None:
    """Blocks that leave most of it idle take as long as the whole."""

    def forward(_: nn.Module, a: Tensor) -> Tensor:
        return torch.tril(torch.tril(a) @ torch.tril(a))

    found = simplified(Asked(forward), [torch.empty(size, size, device="meta")])
    assert (found is not None) == is_cut


def test_rows_are_added_up_first_where_that_moves_less() -> None:
    def forward(m: Any, x: Tensor) -> Tensor:
        return (x @ m.layer.weight.t()[:, :2]).sum(1)

    assert without(forward, drawn(256, 2, 24))[0] is None  # reading the rows is all that the product costs
    assert without(forward, drawn(16, 64, 24))[0] is not None


def test_products_keep_an_order_that_moves_less() -> None:
    """64 by 64 of rank 20: fewer multiplications one after the other, more memory for what is in between."""
    a, b, c = torch.randn(100_000, 64), torch.randn(64, 20), torch.randn(20, 64)
    assert simplified(Asked(lambda _, x, y, z: x @ (y @ z)), [a, b, c]) is None


def test_a_stack_of_weights_used_for_few_rows_each_is_not_added_up() -> None:
    assert without(lambda _, x, w: (x @ w).sum(-1), drawn(32, 2, 24), drawn(32, 24, 40))[0] is None


def change_left(_: nn.Module, v: Tensor, b: Tensor) -> Any:
    scaling, v = torch.diag(v), v.add_(1)
    return scaling @ b, v


def change_diagonal(_: nn.Module, v: Tensor, b: Tensor) -> Any:
    scaling = torch.diag(v)
    scaling[0, 1] = 3
    return scaling @ b


def change_rows(m: Any, x: Tensor) -> Any:
    product = m.layer(x)
    x.mul_(2)
    return product.sum(-1)


def change_through_view(m: Any, x: Tensor) -> Any:
    product = x[1:] @ m.layer.weight.t()
    x.view(-1)[-3:].zero_()
    return product.sum(-1)


def change_buffer(m: Any, x: Tensor) -> Any:
    product = x @ m.counts
    m.counts.add_(1)
    return product.sum(-1)


@pytest.mark.parametrize(
    ("forward", "shapes"),
    [
        (change_left, [(40,), (40, 5)]),
        (change_diagonal, [(8,), (8, 5)]),
        (change_rows, [(32, 24)]),
        (change_through_view, [(33, 24)]),
        (change_buffer, [(32, 24)]),
    ],
)
def test_nothing_is_read_after_it_was_changed(forward: Forward, shapes: list[tuple[int, ...]]) -> None:
    assert lean(forward, *shapes)[0] is None


def lean(forward: Forward, *shapes: tuple[int, ...]) -> tuple[Simplified | None, list[Tensor]]:
    model = Asked(forward).double().eval().requires_grad_(False)
    model.register_buffer("counts", torch.ones(24, 40, dtype=torch.float64))
    inputs = [drawn(*shape) for shape in shapes]
    return simplified(model, inputs), inputs


def test_what_is_changed_before_or_after_is_no_obstacle() -> None:
    def forward(m: Any, x: Tensor) -> Tensor:
        m.counts.add_(1)
        return m.layer(torch.relu_(x * 2)).sum(-1).mul_(2)

    found, inputs = lean(forward, (32, 24))
    assert found is not None
    state = {name: value.clone() for name, value in found.model.state_dict().items()}
    answer = found.model(*inputs)
    torch.testing.assert_close(found.model.state_dict()["counts"], state["counts"] + 1)
    weight, bias = state["layer.weight"], state["layer.bias"]
    torch.testing.assert_close(answer, 2 * nn.functional.linear((inputs[0] * 2).relu(), weight, bias).sum(-1))


REDUCTIONS: dict[str, Forward] = {
    "sum": lambda _, x: x.sum(1, keepdim=True),
    "amax": lambda _, x: x.amax(1),
    "max": lambda _, x: x.max(1, keepdim=True)[0],
    "min": lambda _, x: x.min(1)[0],
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_over_one_element_is_no_view(name: str) -> None:
    found, (x,) = lean(lambda _, x: (REDUCTIONS[name](_, x).add_(1), x), (4, 1, 3))
    assert found is not None
    before = x.clone()
    answer, same = found.model(x)
    torch.testing.assert_close(same, before)
    assert answer.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


SCALARS: dict[str, Forward] = {
    "sum": lambda _, x: torch.sum(x.sum(), dim=0),
    "amax": lambda _, x: torch.amax(x.sum(), 0),
    "max": lambda _, x: torch.max(x.sum(), 0)[0],
    "product": lambda m, x: nn.functional.linear(x, m.layer.weight[0]).sum(0),
}


@pytest.mark.parametrize("name", SCALARS)
def test_scalars_have_no_dimensions_to_go_over(name: str) -> None:
    found, _ = without(SCALARS[name], drawn(24))
    assert found is not None and "over one element" in found.left_out[0]


def test_empty_products_are_left_alone() -> None:
    assert without(lambda _, a, b, c: a @ b @ c, drawn(0, 3), drawn(3, 4), drawn(4, 0))[0] is None


def test_numbers_that_wrap_around_are_not_added_up_before() -> None:
    a, b = (torch.full(shape, 100, dtype=torch.int8) for shape in ((32, 24), (24, 5)))
    assert simplified(Asked(lambda _, a, b: (a @ b / 2).sum(-1)), [a, b]) is None


def test_complex_numbers_have_many_logarithms() -> None:
    x = torch.full((4, 1), 4j, dtype=torch.complex128)
    assert simplified(Asked(lambda _, x: torch.logsumexp(x, 1)), [x]) is None


def test_later_views_find_the_memory_that_they_count_on() -> None:
    found, _ = without(lambda _, v, b: (torch.diag(v) @ b.t()).view(-1), drawn(24), drawn(32, 24))
    assert found is not None and "diagonal" in found.left_out[0]


def test_weights_and_inputs_are_found_in_the_original() -> None:
    model = Asked(lambda m, x: m.layer(x).sum(-1)).eval().requires_grad_(False)
    x = torch.randn(32, 24)
    found = simplified(model, [x])
    assert found is not None
    own = dict(found.model.named_parameters())
    assert {argument_of(value, model, [x]).name for value in own.values()} >= {"layer.weight", "layer.bias"}


def test_a_module_that_cannot_be_exported_says_why() -> None:
    def forward(_: nn.Module, x: Tensor) -> Tensor:
        return x.sum(0) if float(x.sum()) > 0 else x.mean(0)

    with pytest.raises(NotExported, match=r"^GuardOnDataDependentSymNode: .{10}"):
        simplified(Asked(forward), [torch.randn(1, 8)])
