"""Every shape in which host code binds a tile: another value reaches the launch, and the grid follows or nothing is
offered."""

from __future__ import annotations

import difflib

import pytest

from islands.operators.structural.analysis import analyse
from islands.operators.structural.knobs import Knob, KnobKind, knobs_of
from islands.operators.structural.text import splice

KERNEL = """\
import torch
import triton
import triton.language as tl


@triton.jit
def walk(x, y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(y + row * n + at, tl.load(x + row * n + at, mask=at < n), mask=at < n)


@triton.jit
def flat(x, y, n, BLOCK: tl.constexpr = 256):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


def helper(n):
    return triton.next_power_of_2(n), 8


"""

# host code, and a line of it as it must read when BLOCK becomes 64; the rest must stay as it is
BOUND = {
    "literal at the launch": (
        "def kernel_function(x, y, n):\n    walk[(9,)](x, y, n, BLOCK=128)\n",
        "    walk[(9,)](x, y, n, BLOCK=64)\n",
    ),
    "by position": (
        "def kernel_function(x, y, n):\n    walk[(9,)](x, y, n, 128, num_warps=8)\n",
        "    walk[(9,)](x, y, n, 64, num_warps=8)\n",
    ),
    "an expression at the launch": (
        "def kernel_function(x, y, n):\n    walk[(9,)](x, y, n, BLOCK=triton.next_power_of_2(n))\n",
        "    walk[(9,)](x, y, n, BLOCK=64)\n",
    ),
    "a name bound once": (
        "def kernel_function(x, y, n):\n    B = 128\n    flat[(triton.cdiv(n, B),)](x, y, n, BLOCK=B)\n",
        "    B = 64\n",
    ),
    "a pair out of a helper": (
        "def kernel_function(x, y, n):\n    B, w = helper(n)  # both\n"
        "    flat[(triton.cdiv(n, B),)](x, y, n, B, num_warps=w)\n",
        "    B, w = helper(n)  # both\n    B = 64\n",
    ),
    "a name bound in branches": (
        "def kernel_function(x, y, n):\n    if n > 9:\n        B = 128\n    else:\n        B = 256\n"
        "    grid = (triton.cdiv(n, B),)\n    flat[grid](x, y, n, BLOCK=B)\n",
        "        B = 256\n    B = 64\n    grid",
    ),
    "a parameter of the host function": (
        'def launch(x, y, n, B):\n    """Doc."""\n    walk[(9,)](x, y, n, BLOCK=B)\n\n\n'
        "def kernel_function(x, y, n):\n    launch(x, y, n, 128)\n",
        '    """Doc."""\n    B = 64\n    walk',
    ),
    "a default of the host function": (
        "def kernel_function(x, y, n, B=128):\n    walk[(9,)](x, y, n, BLOCK=B)\n",
        "def kernel_function(x, y, n, B=64):\n",
    ),
    "a constant of the module": (
        "TILE = 128\n\n\ndef kernel_function(x, y, n):\n    flat[(triton.cdiv(n, TILE),)](x, y, n, BLOCK=TILE)\n",
        "TILE = 64\n",
    ),
    "an attribute": (
        "class ModelNew:\n    def __init__(self):\n        self.tile = 128\n\n"
        "    def forward(self, x, y, n):\n        walk[(9,)](x, y, n, BLOCK=self.tile)\n",
        "        self.tile = 64\n",
    ),
    "an attribute of the class": (
        "class ModelNew:\n    tile = 128\n\n"
        "    def forward(self, x, y, n):\n        walk[(9,)](x, y, n, BLOCK=self.tile)\n",
        "    tile = 64\n",
    ),
    "a mapping": (
        'def kernel_function(x, y, n):\n    walk[(9,)](x, y, n, **{"BLOCK": 128, "num_warps": 4})\n',
        '    walk[(9,)](x, y, n, **{"BLOCK": 64, "num_warps": 4})\n',
    ),
    "a mapping with a name": (
        "def kernel_function(x, y, n):\n    meta = dict(BLOCK=128)\n    walk[(9,)](x, y, n, **meta)\n",
        "    meta = dict(BLOCK=64)\n",
    ),
    "a grid function": (
        'def kernel_function(x, y, n):\n    flat[lambda m: (triton.cdiv(n, m["BLOCK"]),)](x, y, n, BLOCK=128)\n',
        '    flat[lambda m: (triton.cdiv(n, m["BLOCK"]),)](x, y, n, BLOCK=64)\n',
    ),
    "the same literal in the grid": (
        "def kernel_function(x, y, n):\n    flat[(triton.cdiv(n, 128),)](x, y, n, BLOCK=128)\n",
        "    flat[(triton.cdiv(n, 64),)](x, y, n, BLOCK=64)\n",
    ),
    "the same literal in a name of the grid": (
        "def kernel_function(x, y, n):\n    blocks = (n + 128 - 1) // 128\n    flat[(blocks,)](x, y, n, BLOCK=128)\n",
        "    blocks = (n + 64 - 1) // 64\n    flat[(blocks,)](x, y, n, BLOCK=64)\n",
    ),
    "a default of the kernel": (
        'def kernel_function(x, y, n):\n    flat[lambda m: (triton.cdiv(n, m["BLOCK"]),)](x, y, n)\n',
        "def flat(x, y, n, BLOCK: tl.constexpr = 64):\n",
    ),
}

NOT_OFFERED = {
    "a grid that does not follow": "def kernel_function(x, y, n, g):\n    flat[(g,)](x, y, n, BLOCK=128)\n",
    "a name that the grid does not read": (
        "def kernel_function(x, y, n, g):\n    B = 128\n    flat[(g,)](x, y, n, BLOCK=B)\n"
    ),
    "two literals that look alike": (
        "def kernel_function(x, y):\n    flat[(triton.cdiv(128, 128),)](x, y, 128, BLOCK=128)\n"
    ),
    "a name that a loop changes": (
        "def kernel_function(x, y, n):\n    for B in (64, 128):\n        flat[(triton.cdiv(n, B),)](x, y, n, BLOCK=B)\n"
    ),
}


def tile_knobs(host: str) -> tuple[str, list[Knob]]:
    source = KERNEL + host
    program = analyse(source)
    assert program is not None
    return source, [k for k in knobs_of(program) if k.kind is KnobKind.TILE]


@pytest.mark.parametrize("shape", BOUND)
def test_another_value_is_bound(shape: str) -> None:
    host, wanted = BOUND[shape]
    source, knobs = tile_knobs(host)
    assert len(knobs) == 1
    edited = splice(source, knobs[0].place.set("64"))
    assert edited is not None and wanted in edited
    compile(edited, "<edited>", "exec")
    added = [line for line in difflib.ndiff(source.split("\n"), edited.split("\n")) if line.startswith("+ ")]
    assert 1 <= len(added) <= 2 and all("64" in line for line in added)  # nothing else moved


@pytest.mark.parametrize("shape", NOT_OFFERED)
def test_nothing_is_offered_that_would_break_the_launch(shape: str) -> None:
    _, knobs = tile_knobs(NOT_OFFERED[shape])
    assert not knobs


def test_a_tile_that_must_cover_the_row_is_no_knob() -> None:
    rigid = KERNEL.replace("    for start in range(0, n, BLOCK):\n        at = start + ", "    if True:\n        at = ")
    program = analyse(rigid + "def kernel_function(x, y, n):\n    walk[(9,)](x, y, n, BLOCK=128)\n")
    assert program is not None and not [k for k in knobs_of(program) if k.kind is KnobKind.TILE]


def test_warps_are_merged_into_a_mapping_and_taken_out_again() -> None:
    host = "def kernel_function(x, y, n, opts):\n    walk[(9,)](x, y, n, BLOCK=128, **opts)\n"
    program = analyse(KERNEL + host)
    assert program is not None
    knobs = [k for k in knobs_of(program) if k.kind in (KnobKind.WARPS, KnobKind.STAGES)]
    edited = splice(KERNEL + host, [edit for knob in knobs for edit in knob.place.set("8")])
    assert edited is not None and '**{**{**opts, "num_warps": 8}, "num_stages": 8}' in edited
    host = "def kernel_function(x, y, n):\n    walk[(9,)](x, y, n, BLOCK=128, num_warps=2,)\n"
    program = analyse(KERNEL + host)
    assert program is not None
    warps = next(k for k in knobs_of(program) if k.kind is KnobKind.WARPS)
    assert warps.literal == 2 and warps.place.removal is not None
    removed = splice(KERNEL + host, warps.place.removal)
    assert removed is not None and "num_warps" not in removed
    compile(removed, "<removed>", "exec")
