"""Autotuned programs become plain ones: a program for every configuration, and nothing of the program runs."""

from __future__ import annotations

import pytest
from support.compiling import compile_all

from db.errors import SeedError
from islands.operators.freeze import carries_autotune, freeze_autotune

HEAD = """\
import torch
import triton
import triton.language as tl


"""
KERNEL = """\
@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)


def kernel_function(x):
    y = torch.empty_like(x)
    n = x.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
    double[grid](x, y, n)
    return y


def get_inputs(aligned):
    return [torch.randn(1000)]
"""
LIST = (
    '@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 256})], key=["n"])\n'
)
COMPREHENSION = """\
@triton.autotune(
    [triton.Config(dict(BLOCK=32 * b), num_warps=w, num_stages=2) for b in [2, 8] for w in (1, 2) if b > w * 2],
    key=["n"],
)
"""
FUNCTION = """\
SIZES = [64, 128, 256]


def configurations():
    return [triton.Config({"BLOCK": size}) for size in SIZES]


@triton.autotune(configs=configurations(), key=["n"])
"""


@pytest.mark.parametrize(
    ("decorator", "blocks"), [(LIST, [64, 256]), (COMPREHENSION, [256, 256]), (FUNCTION, [64, 128, 256])]
)
def test_every_configuration_is_a_program(decorator: str, blocks: list[int]) -> None:
    frozen = freeze_autotune(HEAD + decorator + KERNEL)
    assert len(frozen) == len(blocks)
    for source, block in zip(frozen, blocks, strict=True):
        assert f"BLOCK={block}" in source and not carries_autotune(source)


def test_a_plain_program_is_its_own() -> None:
    assert freeze_autotune(HEAD + KERNEL) == [HEAD + KERNEL]


def test_values_and_options_reach_the_launch_and_its_grid() -> None:
    """Compiled for a target, a frozen program shows the grid and the warps of its configuration."""
    first, second = compile_all(freeze_autotune(HEAD + LIST + KERNEL))
    assert [launch[:3] for launch in first] == [["double", [16], [2, 3, None]]]
    assert [launch[:3] for launch in second] == [["double", [4], [4, 3, None]]]


def test_two_kernels_take_their_configurations_side_by_side() -> None:
    twice = HEAD + LIST + KERNEL + FUNCTION + KERNEL.replace("double", "again").replace("kernel_function", "other")
    frozen = freeze_autotune(twice)
    assert len(frozen) == 3
    assert "double[grid](x, y, n, BLOCK=64, num_warps=2" in frozen[0]
    assert "again[grid](x, y, n, BLOCK=64, num_warps=4" in frozen[0]
    # the list of two starts again
    assert "double[grid](x, y, n, BLOCK=64, num_warps=2" in frozen[2]
    assert "again[grid](x, y, n, BLOCK=256, num_warps=4" in frozen[2]


@pytest.mark.parametrize(
    "configurations",
    [
        "load_from_disk()",
        "[triton.Config({'BLOCK': open('/etc/passwd').read()})]",
        "[triton.Config({'BLOCK': 64}, pre_hook=clear)]",
        "[]",
        "[64, 128]",
    ],
)
def test_configurations_that_cannot_be_read_are_said_so(configurations: str) -> None:
    with pytest.raises(SeedError, match="line 6") as caught:
        freeze_autotune(f"{HEAD}@triton.autotune({configurations}, key=['n'])\n{KERNEL}")
    assert "triton.Config" in caught.value.hint
