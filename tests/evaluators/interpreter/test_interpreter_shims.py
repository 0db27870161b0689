"""Each shim: what works with it, and (where this triton and numpy still lack it) that it does not work without it."""

import math
import textwrap
from typing import Any

import numpy as np
import pytest
import triton

from evaluators.sandbox import Exit, Zygote
from evaluators.sandbox.client import ChildEnded

TRITON = tuple(int(part) for part in triton.__version__.split(".")[:2])
NUMPY = tuple(int(part) for part in np.__version__.split(".")[:2])

HEAD = """
import torch
import triton
import triton.language as tl
"""


def run(zygote: Zygote, source: str, x: list[Any], *, without: str = "", dtype: str = "float32") -> Any:
    payload = {"source": HEAD + textwrap.dedent(source), "x": x, "without": without, "dtype": dtype}
    with zygote.spawn("tests.evaluators.interpreter.shim_job:run", payload, deadline_s=60) as child:
        try:
            answer = child.receive()
        except ChildEnded as ended:
            return ended.exit
        assert answer["dtype"] == f"torch.{dtype}"
        return answer["answer"]


LOOP = """
@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x + offsets, mask=offsets < n, other=0.0)
    for start in tl.range(0, n, BLOCK, num_stages=2):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x + offsets, mask=offsets < n, other=0.0)
    tl.store(y, tl.sum(total, 0))

def kernel_function(x):
    y = torch.empty(1)
    kernel[(1,)](x, y, x.numel(), BLOCK=4)
    return y
"""


def test_loops_to_a_bound_known_at_run_time(zygote: Zygote) -> None:
    assert run(zygote, LOOP, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == [42.0]
    if TRITON == (3, 6) and NUMPY >= (2, 4):
        exit = run(zygote, LOOP, [1.0], without="loop_bounds_at_run_time")
        assert "0-dimensional arrays" in exit.detail


SCALARS = """
@triton.jit
def kernel(x, y, scale, is_shifted, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    value = tl.load(x + offsets) * scale.to(tl.float32)
    if is_shifted:
        value += 1
    tl.store(y + offsets, value)

def kernel_function(x):
    y = torch.empty_like(x)
    kernel[(1,)](x, y, 0.5, SHIFTED, BLOCK=2)
    return y
"""


@pytest.mark.parametrize(("shifted", "expected"), [("True", [2.0, 3.0]), ("False", [1.0, 2.0])])
def test_floats_and_bools_are_arguments(zygote: Zygote, shifted: str, expected: list[float]) -> None:
    source = SCALARS.replace("SHIFTED", shifted)
    assert run(zygote, source, [2.0, 4.0]) == expected
    gap = "has no attribute 'to'" if TRITON >= (3, 9) else "exceeds dtype primitive_bitwidth (1 bits)"
    assert gap in run(zygote, source, [2.0, 4.0], without="scalar_arguments").detail


LIBDEVICE = """
IMPORT

@triton.jit
def kernel(x, y, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    value = tl.load(x + offsets)
    tl.store(y + offsets, CALL)

def kernel_function(x):
    y = torch.empty_like(x)
    kernel[(1,)](x, y, BLOCK=x.numel())
    return y
"""
IMPORTS = ("from triton.language.extra import libdevice", "from triton.language.extra.cuda import libdevice")


def call_libdevice(zygote: Zygote, call: str, x: list[float], statement: str = IMPORTS[0], without: str = "") -> Any:
    source = LIBDEVICE.replace("IMPORT", statement).replace("CALL", call)
    return run(zygote, source, x, without=without)


@pytest.mark.parametrize("statement", IMPORTS)
def test_libdevice_from_either_module(zygote: Zygote, statement: str) -> None:
    assert call_libdevice(zygote, "libdevice.rsqrt(value)", [4.0, 0.25], statement) == [0.5, 2.0]
    exit = call_libdevice(zygote, "libdevice.rsqrt(value)", [4.0, 0.25], statement, without="libdevice_functions")
    assert isinstance(exit, Exit)
    assert exit.kind == "error"


@pytest.mark.parametrize(
    ("call", "x", "expected"),
    [
        ("libdevice.tanh(value)", 0.5, math.tanh(0.5)),
        ("libdevice.erf(value)", 0.5, math.erf(0.5)),
        ("libdevice.pow(value, value)", 3.0, 27.0),
        ("libdevice.pow(value, 2.0)", 3.0, 9.0),
        ("libdevice.fast_dividef(value, 2.0)", 3.0, 1.5),
        ("libdevice.fast_expf(value)", 1.0, math.e),
        ("libdevice.round(value)", 2.5, 3.0),
        ("libdevice.rint(value)", 2.5, 2.0),
        ("libdevice.float2int_rz(value)", -2.5, -2.0),
        ("libdevice.div_rn(value, 4.0)", 3.0, 0.75),
        ("libdevice.isnan(value).to(tl.float32)", math.nan, 1.0),
        ("libdevice.float_as_int(value)", 1e-45, 1.0),
    ],
)
def test_what_libdevice_computes(zygote: Zygote, call: str, x: float, expected: float) -> None:
    assert call_libdevice(zygote, call, [x, x]) == pytest.approx([expected] * 2, rel=1e-6)


def test_a_function_that_is_missing_says_so(zygote: Zygote) -> None:
    exit = call_libdevice(zygote, "libdevice.cyl_bessel_i0(value)", [1.0, 1.0])
    assert "NotImplementedError: the interpreter has no __nv_cyl_bessel_i0f of libdevice" in exit.detail


BFLOAT16 = """
@triton.jit
def kernel(x, y, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    value = tl.load(x + offsets)
    tl.store(y + offsets, EXPRESSION)

def kernel_function(x):
    y = torch.empty_like(x)
    kernel[(1,)](x, y, BLOCK=x.numel())
    return y
"""


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("value + value", [2.0, -5.0, 513.0, 0.25]),
        ("value * 3", [3.0, -7.5, 770.0, 0.375]),
        ("-value", [-1.0, 2.5, -256.0, -0.125]),
        ("tl.where(value > 0.5, value, 0.0)", [1.0, 0.0, 256.0, 0.0]),
        ("tl.exp(value.to(tl.float32))", [math.e, math.exp(-2.5), math.inf, math.exp(0.125)]),
        ("value.to(tl.int32)", [1.0, -2.0, 256.0, 0.0]),
        ("value.to(tl.float16)", [1.0, -2.5, 256.0, 0.125]),
        ("tl.maximum(value, 1.0)", [1.0, 1.0, 256.0, 1.0]),
        ("tl.full((BLOCK,), 1.5, tl.bfloat16)", [1.5] * 4),
        ("tl.sum(value, 0)", [255.0] * 4),
        ("tl.max(value, 0)", [256.0] * 4),
        ("tl.argmax(value, 0)", [2.0] * 4),
        ("tl.cumsum(value, 0)", [1.0, -1.5, 254.0, 255.0]),
        ("tl.flip(value, 0)", [0.125, 256.0, -2.5, 1.0]),
        ("tl.sort(value, 0)", [-2.5, 0.125, 1.0, 256.0]),
        ("tl.clamp(value, -1.0, 1.0)", [1.0, -1.0, 1.0, 0.125]),
    ],
)
def test_arithmetic_in_bfloat16(zygote: Zygote, expression: str, expected: list[float]) -> None:
    x = [1.0, -2.5, 256.0, 0.125]
    source = BFLOAT16.replace("EXPRESSION", expression)
    assert run(zygote, source, x, dtype="bfloat16") == pytest.approx(expected, rel=2**-8)


DOT = """
@triton.jit
def kernel(x, y, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    value = tl.load(x + offsets)
    tl.store(y + offsets, tl.dot(value, value).to(tl.bfloat16))

def kernel_function(x):
    y = torch.empty_like(x)
    kernel[(1,)](x, y, BLOCK=16)
    return y
"""


def test_products_in_bfloat16(zygote: Zygote) -> None:
    x = np.eye(16) * 3 + np.eye(16, k=1)
    assert run(zygote, DOT, x.tolist(), dtype="bfloat16") == (x @ x).tolist()
    assert run(zygote, DOT, x.tolist(), dtype="bfloat16", without="bfloat16") != (x @ x).tolist()


AUTOTUNED = """
@triton.autotune(configs=[triton.Config({"BLOCK": 4}), triton.Config({"BLOCK": 8})], key=["n"])
@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offsets, 2 * tl.load(x + offsets, mask=offsets < n), mask=offsets < n)

def kernel_function(x):
    y = torch.empty_like(x)
    kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y
"""


def test_an_autotuned_kernel_runs(zygote: Zygote) -> None:
    assert run(zygote, AUTOTUNED, [1.0] * 9) == [2.0] * 9
    assert "0 active drivers" in run(zygote, AUTOTUNED, [1.0] * 9, without="autotuned_kernels").detail


CUMSUM = """
@triton.jit
def kernel(x, y, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(y + offsets, tl.cumsum(tl.load(x + offsets), axis=0))

def kernel_function(x):
    y = torch.empty_like(x)
    kernel[(1,)](x, y, BLOCK=4)
    return y
"""


def test_running_sums_do_not_lose_small_terms(zygote: Zygote) -> None:
    x = [2.0**24, 1.0, 1.0, 1.0]
    assert run(zygote, CUMSUM, x) == [2.0**24, 2.0**24, 2.0**24 + 2, 2.0**24 + 4]
    assert run(zygote, CUMSUM, x, without="running_sums") == [2.0**24] * 4
    assert run(zygote, CUMSUM, [1, 2, 3, 4], dtype="int32") == [1, 3, 6, 10]


BORROWED = """
@triton.jit
def kernel(x, y):
    tl.store(y, tl.load(x) + inspect.CO_OPTIMIZED)

def kernel_function(x):
    y = torch.empty_like(x)
    kernel[(1,)](x, y)
    return y
"""


def test_a_missing_import_is_noticed(zygote: Zygote) -> None:
    assert "name 'inspect' is not defined" in run(zygote, BORROWED, [1.0]).detail
    assert run(zygote, BORROWED, [1.0], without="no_borrowed_names") == [2.0]


def test_the_language_may_have_any_name(zygote: Zygote) -> None:
    source = """
    @triton.jit
    def kernel(x, y):
        triton.language.store(y, 0 < triton.language.load(x) < 2)

    def kernel_function(x):
        y = torch.empty_like(x)
        kernel[(1,)](x, y)
        return y

    del tl
    """
    assert run(zygote, source, [1.0]) == [1.0]
