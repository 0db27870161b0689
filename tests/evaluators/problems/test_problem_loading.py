"""Problems from names, KernelBench files and Triton files; what is missing is named with its line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from db.errors import ProblemError, SeedError
from evaluators.problems import load_problem, suite_problem

KERNELBENCH = """\
import torch
import torch.nn as nn

batch_size = 4096
heads = 8
dim = heads * 64
eps = 1e-5

class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, x):
        return self.linear(x) + eps

def get_inputs():
    return [torch.randn(batch_size, dim)]

def get_init_inputs():
    return [dim]
"""

KERNEL = """\
import triton
import triton.language as tl

@triton.jit
def scale_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x * 2.0, mask=offsets < n)
"""

MODEL_NEW = """
class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()

    def forward(self, x):
        out = torch.empty_like(x)
        scale_kernel[(triton.cdiv(x.numel(), TILE),)](x, out, x.numel(), BLOCK=TILE)
        return out
"""

TRITON = (
    "import torch\n"
    + KERNEL
    + """
N = 1 << 20
TILE = 1024

def kernel_function(x):
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), TILE),)](x, out, x.numel(), BLOCK=TILE)
    return out

def get_inputs():
    return [torch.randn(N, device="cuda")]
"""
)


def write(folder: Path, text: str, name: str = "mine.py") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def refusal(spec: str, **options: object) -> ProblemError:
    with pytest.raises(ProblemError) as caught:
        load_problem(spec, **options)  # type: ignore[arg-type]
    return caught.value


def test_a_kernelbench_file_becomes_a_problem_with_both_workloads(tmp_path: Path) -> None:
    problem = load_problem(write(tmp_path, KERNELBENCH))
    assert (problem.name, problem.kind, problem.seeds) == ("mine", "kernelbench", ())
    assert problem.full.sizes == {"batch_size": 4096, "heads": 8, "eps": 1e-5}
    assert problem.small.sizes["heads"] == 8 and problem.small.sizes["eps"] == 1e-5
    assert problem.source == KERNELBENCH


def test_sizes_can_be_overridden_and_the_id_follows(tmp_path: Path) -> None:
    spec = write(tmp_path, KERNELBENCH)
    problem = load_problem(spec, sizes={"batch_size": 32})
    assert problem.full.sizes["batch_size"] == 32
    assert problem.problem_id != load_problem(spec).problem_id


def test_a_derived_size_can_be_overridden_too(tmp_path: Path) -> None:
    assert load_problem(write(tmp_path, KERNELBENCH), sizes={"dim": 640}).full.sizes["dim"] == 640


def test_an_unknown_size_is_told_which_exist(tmp_path: Path) -> None:
    error = refusal(write(tmp_path, KERNELBENCH), sizes={"batch": 64})
    assert "'batch'" in error.message
    assert "did you mean 'batch_size'?" in error.hint
    assert "heads=8" in error.hint and "dim=512" in error.hint


@pytest.mark.parametrize("value", [0, -3, 2.5, True])
def test_a_size_must_be_a_positive_whole_number(tmp_path: Path, value: float) -> None:
    error = refusal(write(tmp_path, KERNELBENCH), sizes={"batch_size": value})
    assert "mine.py:4" in error.message and repr(value) in error.message


def test_a_file_without_sizes_says_how_to_get_some(tmp_path: Path) -> None:
    text = KERNELBENCH.replace("batch_size, dim", "4, 512").replace("return [dim]", "return [512]")
    text = "\n".join(line for line in text.splitlines() if not line.startswith(("batch", "heads", "dim", "eps")))
    problem = load_problem(write(tmp_path, text))
    assert problem.small.sizes == problem.full.sizes == {}
    assert "no sizes at module level" in refusal(write(tmp_path, text), sizes={"batch_size": 4}).hint


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("class Model(", "class Net(", "mine.py:9: no Model and no kernel_function (is class Net meant to be Model?)"),
        ("class Model(", "class ModelNew(", "mine.py:9: ModelNew without Model"),
        ("def get_inputs", "def get_input", "mine.py:9: no get_inputs (is get_input meant to be it?)"),
        ("def get_init_inputs", "def init", "mine.py:9: no get_init_inputs"),
        ("def forward", "def run", "mine.py:9: Model has no forward"),
        ("def get_inputs()", "def get_inputs(n)", "mine.py:17: get_inputs must take no arguments, it takes n"),
        (
            "def forward(self, x)",
            "def forward(self, x, y)",
            "mine.py:18: get_inputs returns 1 values, but Model.forward",
        ),
        (
            "return [dim]",
            "return [dim, 1]",
            "mine.py:21: get_init_inputs returns 2 values, but Model.__init__ (line 10)",
        ),
        ("class Model(nn.Module):", "class Model(nn.Module)", "mine.py:9: not Python"),
    ],
)
def test_a_missing_piece_is_named_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    error = refusal(write(tmp_path, KERNELBENCH.replace(old, new)))
    assert message in error.message
    assert error.hint


def test_the_hint_says_what_a_right_file_looks_like(tmp_path: Path) -> None:
    error = refusal(write(tmp_path, "x = 1\n"))
    assert all(
        piece in error.hint for piece in ("class Model(", "get_inputs()", "get_init_inputs()", "kernel_function(")
    )


def test_forward_may_take_defaults_and_stars(tmp_path: Path) -> None:
    for arguments in ("self, x, y=None", "self, *xs", "self, x, /, *, flag=False"):
        load_problem(write(tmp_path, KERNELBENCH.replace("forward(self, x)", f"forward({arguments})")))


def test_small_of_the_file_is_the_small_workload(tmp_path: Path) -> None:
    problem = load_problem(write(tmp_path, KERNELBENCH + 'SMALL = {"batch_size": 3}\n'), sizes={"heads": 4})
    assert problem.small.sizes == {"batch_size": 3, "heads": 4, "eps": 1e-5}


def test_small_may_name_several_workloads(tmp_path: Path) -> None:
    problem = load_problem(write(tmp_path, KERNELBENCH + 'SMALL = [{"batch_size": 3}, {"batch_size": 16}]\n'))
    assert [(w.name, w.sizes["batch_size"]) for w in problem.workloads[1:]] == [("small", 3), ("small-2", 16)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('SMALL = {"batch": 3}', "SMALL names 'batch'"),
        ('SMALL = {"batch_size": 0}', "SMALL['batch_size'] must be a positive number"),
        ("SMALL = 3", "SMALL must be a dict"),
        ("SMALL = dict(batch_size=3)", "SMALL must be spelt out"),
        ('TOLERANCES = {"float32": 1e-3}', "TOLERANCES is not understood"),
        ('TOLERANCES = {"float32": (0, 1e-3)}', "TOLERANCES is not understood"),
    ],
)
def test_a_wrong_setting_in_the_file_is_named_with_its_line(tmp_path: Path, line: str, message: str) -> None:
    error = refusal(write(tmp_path, KERNELBENCH + line + "\n"))
    assert f"mine.py:22: {message}" in error.message


def test_tolerances_of_the_file_become_those_of_the_problem(tmp_path: Path) -> None:
    problem = load_problem(write(tmp_path, KERNELBENCH + 'TOLERANCES = {"float32": (1e-4, 1e-5)}\n'))
    assert (problem.tolerances["float32"].rtol, problem.tolerances["float32"].atol) == (1e-4, 1e-5)


def test_model_new_in_the_file_becomes_a_seed_without_the_reference(tmp_path: Path) -> None:
    both = KERNELBENCH + "\n" + KERNEL + "\nTILE = 256\n" + MODEL_NEW
    problem = load_problem(write(tmp_path, both))
    (seed,) = problem.seeds
    assert all(piece in seed for piece in ("class ModelNew", "def scale_kernel", "TILE = 256", "import torch"))
    assert not any(piece in seed for piece in ("class Model(", "get_inputs", "batch_size"))
    assert "ModelNew" not in problem.source and "scale_kernel" not in problem.source
    assert problem.source.splitlines()[8] == "class Model(nn.Module):"  # lines are those of the file


def test_the_seed_in_a_file_does_not_change_what_is_asked(tmp_path: Path) -> None:
    head = KERNELBENCH + "\n" + KERNEL + "\nTILE = 256\n"
    slow = load_problem(write(tmp_path, head + MODEL_NEW))
    fast = load_problem(write(tmp_path, head.replace("x * 2.0", "x + x") + MODEL_NEW))
    assert slow.problem_id == fast.problem_id
    assert slow.seeds != fast.seeds


def test_a_seed_that_leans_on_the_reference_is_refused(tmp_path: Path) -> None:
    both = KERNELBENCH + "class ModelNew(Model):\n    pass\n"
    assert "mine.py:22: ModelNew uses Model" in refusal(write(tmp_path, both)).message


def test_a_triton_file_is_its_own_reference_and_seed(tmp_path: Path) -> None:
    problem = load_problem(write(tmp_path, TRITON))
    assert (problem.kind, problem.entry_point, problem.source) == ("triton", "kernel_function", TRITON)
    (seed,) = problem.seeds
    assert "def kernel_function" in seed and "TILE = 1024" in seed and "get_inputs" not in seed
    assert problem.full.sizes == {"N": 1 << 20}  # TILE belongs to the program, not to the problem
    assert problem.small.sizes["N"] <= 1 << 18


def test_a_constant_of_the_program_is_no_size(tmp_path: Path) -> None:
    error = refusal(write(tmp_path, TRITON), sizes={"TILE": 64})
    assert "'TILE' is fixed" in error.message and "N=1048576" in error.hint


def test_a_size_that_the_program_shares_with_its_inputs_is_fixed(tmp_path: Path) -> None:
    spec = write(tmp_path, TRITON.replace("torch.randn(N,", "torch.randn(N, TILE,"))
    assert load_problem(spec).full.sizes == {"N": 1 << 20}
    assert "'TILE' is fixed" in refusal(spec, sizes={"TILE": 64}).message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("def get_inputs", "def inputs", "mine.py:14: no get_inputs"),
        ('return [torch.randn(N, device="cuda")]', "return []", "mine.py:20: get_inputs returns 0 values"),
        ("def kernel_function", "@triton.jit\ndef kernel_function", "kernel_function is itself a @triton.jit kernel"),
        ("def kernel_function", "def kernel_fn", "(is kernel_fn meant to be it?)"),
    ],
)
def test_what_a_triton_file_lacks_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert message in refusal(write(tmp_path, TRITON.replace(old, new))).message


@pytest.mark.parametrize(
    ("spelt", "near"),
    [("softmx", "softmax"), ("layer-norm", "layer_norm"), ("RMSnorm", "rms_norm"), ("matmull", "matmul")],
)
def test_a_misspelt_name_suggests_the_near_one(spelt: str, near: str) -> None:
    error = refusal(spelt)
    assert repr(spelt) in error.message and f"did you mean {near!r}?" in error.hint


def test_a_name_that_is_near_to_nothing_lists_all() -> None:
    assert "softmax" in refusal("zzz").hint


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    assert "Is a directory" in refusal(str(tmp_path)).message
    assert "evolve bench takes a folder" in refusal(str(tmp_path)).hint
    binary = tmp_path / "binary.py"
    binary.write_bytes(b"\xff\xfe\x00\x80")
    assert "no text file" in refusal(str(binary)).message
    assert "no file named" in refusal(str(tmp_path / "absent.py")).message


def test_seed_files_come_after_the_seed_of_the_problem(tmp_path: Path) -> None:
    seed = tmp_path / "seed.py"
    seed.write_text("import torch.nn as nn\n" + KERNEL + MODEL_NEW)
    problem = load_problem("softmax", seed_files=[seed])
    assert problem.seeds == (*suite_problem("softmax").seeds, seed.read_text())


def test_a_seed_file_without_the_entry_point_is_refused(tmp_path: Path) -> None:
    seed = Path(write(tmp_path, TRITON))
    with pytest.raises(SeedError, match=r"no ModelNew, it has kernel_function"):
        load_problem("softmax", seed_files=[seed])
    seed.write_text("def f(:\n")
    with pytest.raises(SeedError, match=r"mine.py:1: not Python"):
        load_problem("softmax", seed_files=[seed])


def test_loading_imports_no_torch() -> None:
    code = (
        "import sys; from evaluators.problems import load_problem, mutants; mutants(load_problem('softmax'));"
        "assert not {'torch', 'triton', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
