"""Sizes are found, replaced in the text, and reduced for the interpreter."""

from __future__ import annotations

import ast
import math

import pytest

from evaluators.problems.shrink import MAX_PRODUCT, SMALLEST, shrink
from evaluators.problems.sizes import module_sizes, with_sizes

TEXT = """\
n: int = 64
heads, width = 8, (  # two at once
    32
)
dim = heads * width
half = dim // 2
power = 2**14
shift = 1 << 20
eps = -1e-5
flag = True
name = "text"
huge = 2**100000
n = 128
def f():
    local = 3
"""


def test_sizes_that_are_all_small_stay() -> None:
    assert shrink({"n": 4, "eps": 1e-5}) == {"n": 4, "eps": 1e-5} and shrink({}) == {}


def test_sizes_are_numbers_at_module_level() -> None:
    sizes = {size.name: size.value for size in module_sizes(ast.parse(TEXT)).values()}
    assert sizes == {
        "n": 128, "heads": 8, "width": 32, "dim": 256, "half": 128, "power": 2**14, "shift": 1 << 20, "eps": -1e-5
    }  # fmt: skip


def test_a_size_knows_its_line_and_whether_it_follows_others() -> None:
    sizes = module_sizes(ast.parse(TEXT))
    assert (sizes["n"].line, sizes["n"].is_derived) == (13, False)
    assert (sizes["half"].line, sizes["half"].is_derived) == (6, True)


def test_a_name_that_stops_being_a_number_is_no_size() -> None:
    assert module_sizes(ast.parse("n = 4\nn = str(n)\n")) == {}


def test_new_values_stand_in_the_text_and_derived_ones_follow() -> None:
    namespace: dict[str, object] = {}
    exec(with_sizes(TEXT, {"n": 7, "heads": 2, "width": 5, "eps": 0.5}), namespace)
    assert [namespace[k] for k in ("n", "heads", "width", "dim", "half", "eps")] == [7, 2, 5, 10, 5, 0.5]


def test_text_beside_a_value_survives_letters_of_several_bytes() -> None:
    assert with_sizes('a = "é"; n = 64  # größe\n', {"n": 3}) == 'a = "é"; n = 3  # größe\n'


@pytest.mark.parametrize(
    "sizes",
    [
        {"batch": 4096, "dim": 393216},
        {"M": 4096, "N": 4096, "K": 4096},
        {"batch": 16, "channels": 64, "out": 128, "height": 512, "width": 512, "kernel": 3},
        {"heads": 12, "head": 64, "model": 768, "tokens": 2048, "batch": 32},
        {"batch": 128, "n_in": 1000, "n_out": 30000},
        {"n": 1000003},
    ],
)
def test_small_sizes_keep_what_kernels_rely_on(sizes: dict[str, int]) -> None:
    small = shrink(sizes)
    assert math.prod(v for k, v in small.items() if sizes[k] > SMALLEST) <= MAX_PRODUCT
    for name, value in sizes.items():
        assert small[name] <= value
        if value <= SMALLEST:
            assert small[name] == value
        if value & (value - 1) == 0:
            assert small[name] & (small[name] - 1) == 0, "a power of two stays one"
        for other, its_value in sizes.items():
            if value == its_value:
                assert small[name] == small[other]
            elif value % its_value == 0:
                assert small[name] % small[other] == 0, f"{other} divided {name}"


def test_sizes_that_fit_stay() -> None:
    assert shrink({"n": 98432, "eps": 1e-5}) == {"n": 98432, "eps": 1e-5}
