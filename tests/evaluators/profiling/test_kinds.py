from __future__ import annotations

import pytest

from db.profile import KernelKind
from evaluators.problems import load_problem
from evaluators.profiling.kinds import kernel_kind

# the suite's own seeds: what each does is known
SUITE = {
    "softmax": KernelKind.REDUCTION,
    "rms_norm": KernelKind.ROW,
    "fused_add_rms_norm": KernelKind.ROW,
    "matmul": KernelKind.MATMUL,
    "cumsum": KernelKind.SCAN,
    "reverse_cumsum": KernelKind.SCAN,
    "swiglu": KernelKind.ELEMENTWISE,
    "matvec": KernelKind.REDUCTION,
}


@pytest.mark.parametrize("name", SUITE)
def test_the_kinds_of_the_suite(name: str):
    assert kernel_kind(load_problem(name).seeds[0]) is SUITE[name]


KERNELS = """
import triton
import triton.language as tl


@triton.jit
def combine(a, b):
    return a + b


@triton.jit
def helped(x, n):
    return inner(tl.load(x), n)


@triton.jit
def inner(v, n):
    return tl.sum(v, 0)


@triton.jit
def walks(x, y, n):
    total = tl.zeros((8,), tl.float32)
    for start in range(0, n, 8):
        total += tl.load(x + start + tl.arange(0, 8))
    tl.store(y + tl.arange(0, 8), total)


@triton.jit
def several_rows(x, y, n):
    for row in range(tl.program_id(0), n, tl.num_programs(0)):
        v = tl.load(x + row)
        tl.store(y + row, v / v.sum())


@triton.jit
def scans(x):
    return tl.associative_scan(tl.load(x), 0, combine)


@triton.jit
def plain(x, y):
    for i in tl.static_range(4):
        tl.store(y + i, tl.maximum(tl.load(x + i), 0.0))


@triton.jit
def product_in_a_loop(x, n):
    for k in range(n):
        tl.dot(tl.load(x), tl.load(x))


def forward(x):
    plain[(1,)](x, x)
"""


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("helped", KernelKind.ROW),
        ("walks", KernelKind.REDUCTION),
        ("several_rows", KernelKind.ROW),
        ("scans", KernelKind.SCAN),
        ("plain", KernelKind.ELEMENTWISE),
        ("product_in_a_loop", KernelKind.MATMUL),
    ],
)
def test_a_kernel_is_known_by_its_own_operations(kernel: str, kind: KernelKind):
    assert kernel_kind(KERNELS, kernel) is kind


def test_without_a_name_it_is_the_kernel_that_is_launched():
    assert kernel_kind(KERNELS, "vectorized_elementwise_kernel") is KernelKind.ELEMENTWISE


@pytest.mark.parametrize("source", ["def forward(x):\n    return x", "def (", "", "x\x00"])
def test_what_has_no_kernel_is_of_another_kind(source: str):
    assert kernel_kind(source) is KernelKind.OTHER
