"""Which edits make other work: equal fingerprints for the same machine code on the same arguments, else different."""

# ruff: noqa: E501  a table of edits reads better unbroken

import pytest
import torch

from evaluators.capture.tensors import AddressSpace
from evaluators.sandbox import Zygote
from tests.support.programs import SOFTMAX, capture, edited, tensor

ROWS = tensor(512, 4096)

SAME_WORK = {
    "names of kernel and variables": [("softmax_kernel", "other_kernel"), ("numerator", "top"), ("offsets", "o")],
    "names of arguments": [("(x, y, n, BLOCK", "(source, sink, width, BLOCK"), ("load(x + row * n", "load(source + row * width"), ("store(y + row * n", "store(sink + row * width"), ("offsets < n", "offsets < width")],
    "comments and lines": [("    mask = offsets < n\n", "    # which columns are there\n\n    mask = offsets < n  # all\n")],
    "dead code": [("    mask = offsets < n\n", "    unused = offsets * 3 + row\n    mask = offsets < n\n")],
    "a factor of one": [("numerator / tl.sum", "1.0 * numerator / tl.sum")],
    "reordered statements": [("    offsets = tl.arange(0, BLOCK)\n    mask = offsets < n\n", ""), ("    row = ", "    offsets = tl.arange(0, BLOCK)\n    mask = offsets < n\n    row = ")],
    "stages where nothing is pipelined": [("num_warps=8", "num_warps=8, num_stages=5")],
    "an allocation spelt otherwise": [("torch.empty_like(x)", "torch.empty(x.shape, dtype=x.dtype, device=x.device)")],
}  # fmt: skip

OTHER_WORK = {
    "warps": [("num_warps=8", "num_warps=4")],
    "exp2": [("tl.exp(value)", "tl.exp2(value * 1.4426950408889634)")],
    "eviction policy": [('other=-float("inf"))', 'other=-float("inf"), eviction_policy="evict_first")')],
    "grid": [("(x.shape[0],)", "(x.shape[0] // 2,)")],
    "a scalar argument": [("x.shape[1], BLOCK", "x.shape[1] - 16, BLOCK")],
    "input and output swapped": [("(x, y, x.shape", "(y, x, x.shape")],
    "another tensor returned": [("return y", "return x")],
    "a second launch": [("        return y", "        softmax_kernel[(1,)](x, y, x.shape[1], BLOCK=4096, num_warps=8)\n        return y")],
    "memory that is cleared first": [("torch.empty_like(x)", "torch.zeros_like(x)")],
    "an argument that is not aligned": [("(x, y, x.shape[1]", "(x.view(-1)[1:], y, x.shape[1]")],
}  # fmt: skip


@pytest.fixture(scope="module")
def original(compiling: Zygote) -> str:
    return capture(compiling, SOFTMAX, ROWS).fingerprint


@pytest.mark.parametrize("name", SAME_WORK)
def test_the_same_work_has_the_same_fingerprint(compiling: Zygote, original: str, name: str) -> None:
    assert capture(compiling, edited(SOFTMAX, *SAME_WORK[name]), ROWS).fingerprint == original


@pytest.mark.parametrize("name", OTHER_WORK)
def test_other_work_has_another_fingerprint(compiling: Zygote, original: str, name: str) -> None:
    assert capture(compiling, edited(SOFTMAX, *OTHER_WORK[name]), ROWS).fingerprint != original


def test_a_storage_that_dies_is_not_taken_for_the_next() -> None:
    addresses = AddressSpace()
    assert len({addresses.label_of(torch.empty(1024)) for _ in range(50)}) == 50


def test_another_process_gives_the_same_fingerprint(compiling: Zygote, original: str) -> None:
    assert capture(compiling, SOFTMAX, ROWS).fingerprint == original
