"""The judge's call: outputs, or a failure with its kind, or unsupported; and which inputs were written to."""

import textwrap
from typing import Any

import pytest
import torch

from db.records import TensorSpec
from evaluators.hardware import load_hardware
from evaluators.interpreter.run import InputSet, InterpretResult, interpret, interpret_sets
from evaluators.sandbox import Zygote

HEAD = """
import torch
import triton
import triton.language as tl
"""

MODEL = """
@triton.jit
def scale(x, w, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y + offsets, tl.load(x + offsets, mask=mask) * tl.load(w + offsets, mask=mask), mask=mask)

class ModelNew(torch.nn.Module):
    def __init__(self, n, bias):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(n))
        self.bias = bias

    def forward(self, x, shift):
        assert x.is_cuda and x.device.type == "cuda" and torch.cuda.is_available()
        y = torch.empty(x.shape, device=x.device, dtype=x.dtype)
        n_sms = torch.cuda.get_device_properties(x.device).multi_processor_count
        scale[(min(n_sms, triton.cdiv(x.numel(), 4)),)](x, self.weight, y, x.numel(), BLOCK=4)
        with torch.cuda.device(x.device):
            total = torch.zeros((), device="cuda") + shift
        torch.cuda.synchronize()
        return y + self.bias, (total, torch.ones(0, 3))
"""


def run(zygote: Zygote, source: str, inputs: list[Any], specs: list[TensorSpec], **changes: Any) -> InterpretResult:
    arguments: dict[str, Any] = {"entry_point": "kernel_function", "init_args": [], "weights": {}, "deadline_s": 30}
    arguments.update(changes)
    return interpret(zygote, source=HEAD + textwrap.dedent(source), inputs=inputs, output_specs=specs, **arguments)


def spec(*shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(shape=shape, dtype=dtype)


def test_a_model_gets_weights_and_inputs_and_gives_tensors(zygote: Zygote) -> None:
    x, weight = torch.arange(6.0), torch.arange(6.0).flip(0)
    specs = [spec(6), spec(), spec(0, 3)]
    result = run(zygote, MODEL, [x, 7], specs, entry_point="ModelNew", init_args=[6, 0.5], weights={"weight": weight})
    assert result.failure is None
    assert result.outputs is not None
    y, total, empty = result.outputs
    assert torch.equal(y, x * weight + 0.5)
    assert torch.equal(total, torch.tensor(7.0))
    assert empty.shape == (0, 3)
    assert result.changed_inputs == ()


def test_the_callers_inputs_are_not_touched_and_changes_are_seen(zygote: Zygote) -> None:
    a, b = torch.full((2, 3), float("nan")).t(), torch.zeros(4)
    result = run(zygote, "def kernel_function(a, n, b):\n    return b.mul_(-1).clone()", [a, 1, b], [spec(4)])
    assert result.outputs is not None
    assert result.changed_inputs == (2,)
    assert torch.equal(b.view(torch.int32), torch.zeros(4, dtype=torch.int32))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("x, x", "2 outputs instead of 1"),
        ("x[:1]", "output 0: shape (1,) instead of (2,)"),
        ("x.double()", "output 0: torch.float64 instead of torch.float32"),
        ("torch.nn.Parameter(x)", "output 0: a Parameter instead of a torch.Tensor"),
        ("3", "output 0: a int instead of a torch.Tensor"),
        ("None", "output 0: a NoneType instead of a torch.Tensor"),
        ("torch.ones(4)[::2]", "output 0: strides (2,) instead of (1,)"),
        ("x", "output 0: it lies in the memory of an input or a weight, the reference's has memory of its own"),
    ],
)
def test_outputs_must_be_exactly_what_was_announced(zygote: Zygote, answer: str, reason: str) -> None:
    result = run(zygote, f"def kernel_function(x):\n    return {answer}", [torch.ones(2)], [spec(2)])
    assert result.failure == ("mismatch", reason)
    assert result.outputs is None


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        ("raise ValueError('bad')", "error", "ValueError: bad\n  at candidate.py:6 in kernel_function: raise"),
        ("raise NotImplementedError('todo')", "error", "NotImplementedError: todo"),
        ("return x.no_such_thing", "error", "no attribute 'no_such_thing'"),
        ("while True: pass", "timeout", "still running after 1 s"),
        ("import os; os._exit(0)", "crash", "exited with code 0 before the job returned"),
        ("import ctypes; ctypes.string_at(0)", "crash", "SIGSEGV"),
        ("raise SystemExit", "crash", "SystemExit"),
    ],
)
def test_failures_have_a_kind_and_a_reason(zygote: Zygote, body: str, kind: str, reason: str) -> None:
    deadline_s = 1 if kind == "timeout" else 30
    source = f"def kernel_function(x):\n    {body}"
    result = run(zygote, source, [torch.ones(2)], [spec(2)], deadline_s=deadline_s)
    assert result.failure is not None
    assert result.failure.kind == kind
    assert reason in result.failure.reason


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def kernel_function(x):\n    return (", "SyntaxError"),
        ("import no_such_module", "No module named 'no_such_module'"),
        ("def other(x):\n    return x", "the program defines no kernel_function"),
    ],
)
def test_a_program_that_cannot_be_loaded(zygote: Zygote, source: str, reason: str) -> None:
    result = run(zygote, source, [torch.ones(2)], [spec(2)])
    assert result.failure is not None
    assert result.failure.kind == "error"
    assert reason in result.failure.reason


KERNEL = """
IMPORT

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
ASSEMBLY = 'tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [value], tl.float32, True, 1)'


@pytest.mark.parametrize(
    ("statement", "expression"),
    [
        ("", ASSEMBLY),
        ("from triton.language.extra import libdevice", "libdevice.cyl_bessel_i0(value)"),
        ("from triton.language import exp", "exp(value)"),
    ],
)
def test_what_the_interpreter_cannot_run_is_unsupported(zygote: Zygote, statement: str, expression: str) -> None:
    result = run(
        zygote, KERNEL.replace("IMPORT", statement).replace("EXPRESSION", expression), [torch.ones(2)], [spec(2)]
    )
    assert result.failure is None
    assert result.outputs is None
    assert result.unsupported is not None
    assert result.unsupported.startswith("the interpreter cannot run it: ")


@pytest.mark.parametrize("expression", ["value + undefined", "value.undefined", "tl.load(y, mask=1, oder=0)", "1 / 0"])
def test_an_error_in_a_kernel_is_the_candidates(zygote: Zygote, expression: str) -> None:
    source = KERNEL.replace("IMPORT", "").replace("EXPRESSION", expression)
    result = run(zygote, source, [torch.ones(2)], [spec(2)])
    assert result.unsupported is None
    assert result.failure is not None
    assert result.failure.kind == "error"
    assert "at candidate.py" in result.failure.reason


def test_sets_run_one_after_another_in_one_child_until_one_fails(zygote: Zygote) -> None:
    source = """
    calls = []

    def kernel_function(x, n):
        calls.append(n)
        if n == 3:
            x.zero_()
            raise ValueError(f"call {len(calls)}")
        return x + len(calls)
    """
    sets = [InputSet([torch.full((2,), 10.0 * n), n], [spec(2)]) for n in (1, 2, 3, 4)]
    results = interpret_sets(
        zygote,
        source=HEAD + textwrap.dedent(source),
        entry_point="kernel_function",
        init_args=[],
        weights={},
        sets=sets,
        deadline_s=30,
    )
    first, second, third = results
    assert first.outputs is not None and first.outputs[0].tolist() == [11.0, 11.0]
    assert second.outputs is not None and second.outputs[0].tolist() == [22.0, 22.0]
    assert third.failure is not None and third.failure.reason.startswith("ValueError: call 3")
    assert [result.changed_inputs for result in results] == [(), (), (0,)]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "int32", "int64", "uint8", "bool"])
def test_every_dtype_goes_in_and_out(zygote: Zygote, dtype: str) -> None:
    x = torch.tensor([[0, 1, 1], [1, 0, 1]], dtype=getattr(torch, dtype))
    result = run(zygote, "def kernel_function(x):\n    return x.t().contiguous()", [x], [spec(3, 2, dtype=dtype)])
    assert result.outputs is not None
    assert torch.equal(result.outputs[0], x.t())


DETECTING = """
@triton.jit
def kernel(x, y, n, scale, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offsets, tl.load(x + offsets, mask=offsets < n) * scale, mask=offsets < n)

def kernel_function(x):
    y = torch.empty_like(x)
    answer = kernel[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, y, x.numel(), 2.0, BLOCK=4)
    assert answer is None
    name = torch.cuda.get_device_name(x.device)
    n_sms = triton.runtime.driver.active.utils.get_device_properties(0)["multiprocessor_count"]
    assert (name, n_sms) == ("NVIDIA H200", torch.cuda.get_device_properties(0).multi_processor_count)
    return y
"""


def test_a_program_sees_the_target_and_its_launches_are_told(zygote: Zygote) -> None:
    hardware = load_hardware("h200").model_copy(update={"name": "NVIDIA H200"})
    source, asked = HEAD + DETECTING, [InputSet([torch.ones(6)], [spec(6)])]
    [result] = interpret_sets(
        zygote,
        source=source,
        entry_point="kernel_function",
        init_args=[],
        weights={},
        sets=asked,
        deadline_s=30,
        hardware=hardware,
    )
    assert result.failure is None and result.outputs is not None
    assert result.outputs[0].tolist() == [2.0] * 6
    [launch] = result.launches
    assert (launch["kernel"], launch["grid"], launch["constexprs"]) == ("kernel", [2, 1, 1], {"BLOCK": 4})
    assert launch["arguments"] == ["float32(6,)(1,)", "float32(6,)(1,)", "int 6", "float 2.0"]


WRITING = """
@triton.jit
def scale(w, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(w + offsets, tl.load(w + offsets, mask=offsets < n) * 2.0, mask=offsets < n)

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("mean", torch.ones(3))
        self.register_buffer("scratch", torch.ones(3))

    def forward(self, x):
        scale[(1,)](self.NAME, 3, BLOCK=4)
        return x + 0.0
"""


@pytest.mark.parametrize(("name", "changed"), [("weight", ("weight",)), ("mean", ("mean",)), ("scratch", ())])
def test_written_weights_are_seen(zygote: Zygote, name: str, changed: tuple[str, ...]) -> None:
    weights = {"weight": torch.full((3,), 0.5), "mean": torch.full((3,), 0.25)}
    source = WRITING.replace("NAME", name)
    result = run(zygote, source, [torch.ones(2)], [spec(2)], entry_point="ModelNew", weights=weights)
    assert result.failure is None and result.outputs is not None
    assert result.changed_weights == changed


def test_an_output_may_borrow_where_the_reference_does(zygote: Zygote) -> None:
    [result] = interpret_sets(
        zygote,
        source=HEAD + "def kernel_function(x):\n    return x",
        entry_point="kernel_function",
        init_args=[],
        weights={},
        sets=[InputSet([torch.ones(2)], [spec(2)], borrowed=(0,))],
        deadline_s=30,
    )
    assert result.outputs is not None and result.outputs[0].tolist() == [1.0, 1.0]


def test_an_address_is_no_number(zygote: Zygote) -> None:
    source = KERNEL.replace("IMPORT", "").replace("EXPRESSION", "value + (x.to(tl.int64) % 2)")
    result = run(zygote, source, [torch.ones(2)], [spec(2)])
    assert result.unsupported is not None and "reads an address as a number" in result.unsupported
