"""References answer the same every time, allocate nothing for specs, and tell faults of a file with their line."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from db.errors import DeviceError, ProblemError
from db.records import Problem, TensorSpec
from evaluators.problems import load_problem, suite_names, suite_problem
from evaluators.problems.module import load_module, telling_faults
from evaluators.problems.reference import Reference
from evaluators.problems.widening import follows_inputs

TEMPLATE = """\
import random
import numpy as np
import torch
import torch.nn as nn

n = 6

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n))

    def forward(self, x, labels, factor):
        {forward}

def get_inputs():
    {inputs}

def get_init_inputs():
    return []

SMALL = {{"n": 6}}
"""
INPUTS = "return [torch.randn(n, n), torch.randint(0, n, (n,)), random.random() + np.random.rand()]"
FORWARD = "return {'out': x * self.weight * factor, 'more': (labels + 1,)}"


def reference(folder: Path, forward: str = FORWARD, inputs: str = INPUTS) -> Reference:
    path = folder / "mine.py"
    path.write_text(TEMPLATE.format(forward=forward, inputs=inputs))
    problem = load_problem(str(path))
    return Reference(problem, problem.small)


def test_inputs_depend_on_the_seed_alone(tmp_path: Path) -> None:
    mine = reference(tmp_path)
    first = mine.draw_inputs(42, "cpu")
    torch.manual_seed(6)
    random.seed(6)
    np.random.seed(6)
    again, other = mine.draw_inputs(42, "cpu"), mine.draw_inputs(1337, "cpu")
    assert all(torch.equal(a, b) for a, b in zip(first[:2], again[:2], strict=True)) and first[2] == again[2]
    assert not torch.equal(first[0], other[0]) and first[2] != other[2]


def test_drawing_leaves_the_generators_as_they_were(tmp_path: Path) -> None:
    mine = reference(tmp_path)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    mine.draw_inputs(42, "cpu")
    mine.weights("cpu")
    assert torch.equal(torch.rand(3), expected)


def test_variants_change_floating_tensors_only(tmp_path: Path) -> None:
    mine = reference(tmp_path)
    plain, flipped, scaled = (mine.draw_inputs(0, "cpu", v) for v in ("plain", "flipped", "scaled"))
    assert torch.equal(flipped[0], -plain[0]) and torch.equal(scaled[0], 8 * plain[0])
    for changed in (flipped, scaled):
        assert torch.equal(changed[1], plain[1]) and changed[2] == plain[2]


def test_weights_are_the_same_in_two_references_and_not_zero(tmp_path: Path) -> None:
    first, second = (reference(tmp_path).weights("cpu")["weight"] for _ in range(2))
    assert torch.equal(first, second) and first.abs().min() > 0


def test_outputs_are_a_flat_list(tmp_path: Path) -> None:
    mine = reference(tmp_path)
    x, labels, factor = mine.draw_inputs(0, "cpu")
    out, more = mine.expected([x, labels, factor])
    torch.testing.assert_close(out, x * mine.weights("cpu")["weight"] * factor)
    assert torch.equal(more, labels + 1) and not out.requires_grad


def test_float64_stays_in_float64(tmp_path: Path) -> None:
    mine = reference(tmp_path)
    inputs = mine.draw_inputs(0, "cpu")
    exact, integers = mine.expected_float64(inputs)
    assert exact.dtype == torch.float64 and integers.dtype == torch.int64
    error = (mine.expected(inputs)[0].double() - exact).abs().max().item()
    assert 0 < error < 1e-6
    assert mine.weights("cpu")["weight"].dtype == torch.float32, "the float32 model is another"


def test_specs_allocate_nothing() -> None:
    problem = load_problem("softmax", sizes={"n_rows": 1 << 30, "n_cols": 1 << 30})  # an exabyte
    full = Reference(problem, problem.full)
    spec = TensorSpec(shape=(1 << 30, 1 << 30), dtype="float32", strides=(1 << 30, 1))
    assert full.input_specs() == [spec]
    assert full.output_specs() == [spec]


def test_specs_of_numbers_and_of_files_that_read_values(tmp_path: Path) -> None:
    text = "x = torch.randn(n, n); k = int(x.argmax().item()); return [x[: k % 2 + 1], torch.tensor([k]), None]"
    rows, integers, nothing = reference(tmp_path, inputs=text).input_specs()
    assert isinstance(rows, TensorSpec) and rows.shape[1] == 6 and nothing is None
    assert isinstance(integers, TensorSpec) and integers.dtype == "int64"


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        ("return x @ missing", "forward failed at line 14: NameError: name 'missing' is not defined"),
        ("return x + torch.randn(n)", "draws random numbers"),
        ("return x.mul_(2)", "changes its inputs"),
    ],
)
def test_a_reference_that_cannot_be_judged_by_is_refused(tmp_path: Path, forward: str, message: str) -> None:
    mine = reference(tmp_path, forward=forward)
    with pytest.raises(ProblemError, match=message):
        mine.expected(mine.draw_inputs(0, "cpu"))


def test_faults_of_get_inputs_are_told_with_their_line(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match=r"get_inputs failed at line 18: ZeroDivisionError"):
        reference(tmp_path, inputs="zero = 0\n    return [1 / zero, 1, 1]").draw_inputs(0, "cpu")


def test_a_file_that_does_not_import_says_so(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import no_such_module\n" + TEMPLATE.format(forward=FORWARD, inputs=INPUTS))
    problem = load_problem(str(path))
    with pytest.raises(ProblemError, match=r"reading the file failed at line 1: ModuleNotFoundError") as raised:
        Reference(problem, problem.small)
    assert "PYTHONPATH" in raised.value.hint  # from its own folder, plain Python would find what is missing


def test_a_shape_that_does_not_fit_in_memory_says_how_to_make_it_fit() -> None:
    problem = load_problem("softmax", sizes={"n_rows": 1 << 26, "n_cols": 1 << 26})
    with pytest.raises(DeviceError, match="does not fit in memory") as caught:
        Reference(problem, problem.full).draw_inputs(0, "cpu")
    assert "--shape" in caught.value.hint


def test_cuda_in_a_file_means_the_device_that_is_asked_for(tmp_path: Path) -> None:
    inputs = 'return [torch.randn(n, n, device="cuda"), torch.zeros(n).cuda().long().to("cuda:0"), 1.0]'
    drawn = reference(tmp_path, inputs=inputs).draw_inputs(0, "cpu")
    assert [t.device.type for t in drawn[:2]] == ["cpu", "cpu"]


@pytest.mark.parametrize("named", ['"cuda:0"', 'torch.device("cuda", 0)', 'torch.device(type="cuda", index=0)'])
def test_a_device_may_be_written_in_parts(tmp_path: Path, named: str) -> None:
    """As the graphs of torch.compile write it: `device=device(type='cuda', index=0)`."""
    drawn = reference(tmp_path, inputs=f"return [torch.randn(n, n, device={named}), torch.zeros(n), 1.0]").draw_inputs(
        0, "cpu"
    )
    assert drawn[0].device.type == "cpu"


@pytest.mark.parametrize("name", suite_names())
def test_every_suite_problem_runs_at_its_small_workload(name: str) -> None:
    problem: Problem = suite_problem(name)
    small = Reference(problem, problem.small)
    outputs = small.expected(small.draw_inputs(0, "cpu"))
    assert [(s.shape, s.dtype) for s in small.output_specs()] == [
        (tuple(t.shape), str(t.dtype).removeprefix("torch.")) for t in outputs
    ]
    assert all(t.isfinite().all() for t in outputs)


TRITON = """\
import torch
import triton
import triton.language as tl

N = 300

@triton.jit
def scale_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n)
        tl.store(out_ptr + offsets, x * 2, mask=offsets < n)

def kernel_function(x):
    print("to nobody")
    if x.shape[0] == 7:
        raise ValueError("seven")
    out = torch.empty_like(x)
    scale_kernel[(1,)](x, out, x.numel(), BLOCK=64)
    return out

def get_inputs():
    return [torch.randn(N, device="cuda")]
"""


def test_a_triton_file_is_interpreted_where_there_is_no_gpu(tmp_path: Path) -> None:
    path = tmp_path / "scale.py"
    path.write_text(TRITON)
    problem = load_problem(str(path))
    mine = Reference(problem, problem.small)
    inputs = mine.draw_inputs(0, "cpu")
    assert torch.equal(mine.expected(inputs)[0], inputs[0] * 2)
    assert torch.equal(mine.expected_float64(inputs)[0], inputs[0].double() * 2)
    assert mine.weights("cpu") == {} and mine.init_args() == []
    with pytest.raises(ProblemError, match="ValueError: seven"):
        mine.expected([inputs[0][:7]])
    assert torch.equal(mine.expected(inputs)[0], inputs[0] * 2), "it goes on after a fault"


SUMMING = """\
import torch
import triton
import triton.language as tl

@triton.jit
def sum_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total = total + tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(out_ptr, tl.sum(total))

def kernel_function(x):
    out = torch.empty((1,), device=x.device, dtype=x.dtype)
    sum_kernel[(1,)](x, out, x.numel(), BLOCK=64)
    return out

def get_inputs():
    return [torch.randn(300, device="cuda", dtype=torch.float32)]
"""


def test_what_the_compiler_refuses_is_a_fault_of_the_file() -> None:
    """The accumulator is float32, the inputs are float64."""
    kernel = load_module(SUMMING, "problem_summing").sum_kernel
    signature = {"x_ptr": "*fp64", "out_ptr": "*fp64", "n": "i32", "BLOCK": "constexpr"}
    program = ASTSource(fn=kernel, signature=signature, constexprs={"BLOCK": 64})
    told = r"forward failed: CompilationError: .*Loop-carried variable total .* re-assigned to .*fp64"
    with pytest.raises(ProblemError, match=told), telling_faults("summing", "forward"):
        compile(program, target=GPUTarget("cuda", 90, 32))


def test_a_kernel_that_names_a_type_is_no_reference_in_float64(tmp_path: Path) -> None:
    path = tmp_path / "summing.py"
    path.write_text(SUMMING)
    problem = load_problem(str(path))
    mine = Reference(problem, problem.small)
    with pytest.raises(ProblemError, match="compute in the types that they name"):
        mine.expected_float64(mine.draw_inputs(0, "cpu"))


@pytest.mark.parametrize(
    ("line", "follows"),
    [
        ("x = x + float('-inf')", True),
        ("y = x.to(out_ptr.dtype.element_ty)", True),
        ("y = x.to(tl.float64)", True),
        ("y = x.to(tl.float32)", False),
        ("y = tl.cast(x, 'fp16')", False),
        ("y = x.to(tl.float8e5)", False),
        ("x = helper(x)", False),
    ],
)
def test_which_kernels_follow_their_inputs(line: str, follows: bool) -> None:
    helper = "@triton.jit\ndef helper(x):\n    return x.to(tl.bfloat16)\n\n"
    source = TRITON.replace("@triton.jit", f"{helper}@triton.jit", 1)
    source = source.replace("tl.store", f"{line}\n        tl.store", 1)
    assert follows_inputs(source) is follows


@pytest.mark.parametrize(("dtype", "follows"), [("", False), (", dtype=x.dtype", True)])
def test_scratch_of_the_usual_type_does_not_follow_the_inputs(dtype: str, follows: bool) -> None:
    scratch = f"def kernel_function(x):\n    scratch = torch.empty((4,), device=x.device{dtype})\n"
    assert follows_inputs(TRITON.replace("def kernel_function(x):\n", scratch)) is follows
