"""Files with Helion kernels: how they are recognised, what they must hold, what becomes of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from db.errors import ProblemError
from evaluators.problems import load_problem
from evaluators.problems.files import SourceFile
from evaluators.problems.helion_files import HelionFile, helion_kernels, read_helion
from evaluators.problems.reference import Reference

GENERATED = (Path(__file__).parents[2] / "data" / "helion" / "row_softmax.py").read_text()

KERNEL = """\
import helion
import helion.language as hl
import torch

rows = 6
columns = 64


@helion.kernel(config=helion.Config(block_sizes=[1], num_warps=4))
def row_softmax(x: torch.Tensor) -> torch.Tensor:
    n, _m = x.size()
    out = torch.empty_like(x)
    for tile_n in hl.tile(n):
        out[tile_n, :] = torch.nn.functional.softmax(x[tile_n, :], dim=1)
    return out


def get_inputs():
    return [torch.randn(rows, columns)]
"""
REFERENCE = """

def reference(x):
    return torch.softmax(x, dim=1)
"""
MODEL = """

class Model(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return torch.softmax(x, dim=self.dim)


def get_init_inputs():
    return [1]
"""
SECOND = "\n\n@helion.kernel()\ndef another(x):\n    return x\n"
FUNCTION = "\n\ndef kernel_function(x):\n    return row_softmax(x)\n"


def read(text: str) -> HelionFile:
    return read_helion(SourceFile(text, "mine.py"))


@pytest.mark.parametrize(
    ("imported", "decorator"),
    [
        ("import helion", "helion.kernel"),
        ("import helion", "helion.kernel()"),
        ("import helion as h", "h.kernel(static_shapes=False)"),
        ("from helion import kernel", "kernel"),
        ("from helion import kernel as tiled", "tiled()"),
        ("import helion.language", "helion.jit"),
    ],
)
def test_a_kernel_is_known_by_its_decorator(imported: str, decorator: str) -> None:
    found = helion_kernels(SourceFile(f"{imported}\n\n@{decorator}\ndef mine(x):\n    return x\n", "mine.py").tree)
    assert [function.name for function in found] == ["mine"]


def test_decorators_of_others_are_none() -> None:
    text = (
        "import triton\nfrom other import kernel\n\n@triton.jit\ndef a(x):\n    pass\n\n@kernel\ndef b(x):\n    pass\n"
    )
    assert helion_kernels(SourceFile(text, "mine.py").tree) == []


def test_a_reference_function_becomes_the_model() -> None:
    held = read(KERNEL + REFERENCE)
    assert (held.kind, held.kernels, held.is_called_alone) == ("kernelbench", ("row_softmax",), True)
    source = held.reference({"row_softmax": GENERATED})
    assert "class Model(torch.nn.Module):\n    def forward(self, x):\n        return reference(x)" in source
    assert "helion" not in source and "ModelNew" not in source
    assert source.splitlines()[18] == KERNEL.splitlines()[18], "lines are those of the file"


def test_a_program_is_the_generated_code_in_the_place_of_the_kernel() -> None:
    program = read(KERNEL + REFERENCE).program({"row_softmax": GENERATED})
    assert program.startswith("import torch\nimport triton\nimport triton.language as tl\n")
    assert "import helion" not in program and "hl." not in program and "get_inputs" not in program
    assert program.endswith(
        "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return row_softmax(x)\n"
    )


def test_arguments_of_the_model_are_taken_by_the_program_that_is_written() -> None:
    program = read(KERNEL + MODEL).program({"row_softmax": GENERATED})
    assert "def __init__(self, *arguments):\n        super().__init__()" in program


def test_a_program_of_the_file_calls_the_kernel_its_own_way() -> None:
    own = (
        "\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return row_softmax(x.contiguous())\n"
    )
    held = read(KERNEL + MODEL + own + SECOND)
    assert not held.is_called_alone
    program = held.program({"row_softmax": GENERATED})
    assert "row_softmax(x.contiguous())" in program and "another" not in program


@pytest.mark.parametrize("text", [KERNEL, KERNEL + FUNCTION])
def test_without_a_reference_the_program_is_its_own(text: str) -> None:
    held = read(text)
    assert (held.kind, held.entry_point) == ("triton", "kernel_function")
    source = held.reference({"row_softmax": GENERATED})
    assert "def kernel_function(x):\n    return row_softmax(x)" in source
    assert "def get_inputs" in source and "rows = 6" in source and "helion." not in source


def test_defaults_of_the_kernel_are_those_of_the_entry_point() -> None:
    text = KERNEL.replace("(x: torch.Tensor)", "(x: torch.Tensor, scale: float = 1.5, *more)")
    added = read(text).file.text
    assert "def kernel_function(x, scale=1.5, *more):\n    return row_softmax(x, scale, *more)" in added


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (KERNEL.replace("def get_inputs", "def inputs"), "mine.py:10: no get_inputs"),
        (KERNEL + SECOND, "mine.py:10: no kernel_function, and several Helion kernels: row_softmax, another"),
        (KERNEL + REFERENCE + SECOND, "mine.py:10: no ModelNew, and several Helion kernels: row_softmax, another"),
        (
            KERNEL + "\n\ndef reference(x):\n    return row_softmax(x)\n",
            "reference calls the Helion kernel row_softmax",
        ),
        (KERNEL.replace("columns)]", "columns), 3]"), "get_inputs returns 2 values, but row_softmax (line 10) takes 1"),
    ],
)
def test_what_is_missing_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ProblemError) as caught:
        read(text)
    assert message in caught.value.message and caught.value.hint


def test_without_helion_the_error_has_the_line_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "helion", None)  # as where it is not installed
    (tmp_path / "mine.py").write_text(KERNEL)
    with pytest.raises(ProblemError) as caught:
        load_problem(str(tmp_path / "mine.py"))
    assert "mine.py:10: row_softmax is a Helion kernel, and Helion is not installed" in caught.value.message
    assert caught.value.hint == "pip install '.[helion]'"


@pytest.mark.parametrize("rest", ["", REFERENCE, MODEL])
def test_with_helion_a_file_becomes_a_problem_that_runs_without_it(tmp_path: Path, rest: str) -> None:
    pytest.importorskip("helion", reason="the extra helion is not installed")
    (tmp_path / "mine.py").write_text(KERNEL + 'SMALL = {"rows": 3, "columns": 50}\n' + rest)
    problem = load_problem(str(tmp_path / "mine.py"), sizes={"rows": 8})
    assert (problem.full.sizes, problem.small.sizes) == ({"rows": 8, "columns": 64}, {"rows": 3, "columns": 50})
    (seed,) = problem.seeds
    assert "helion." not in seed + problem.source and "_helion_row_softmax[(n,)](" in seed
    assert [spec.shape for spec in Reference(problem, problem.small).output_specs()] == [(3, 50)]


def test_with_helion_fixed_sizes_are_checked_as_they_are_timed(tmp_path: Path) -> None:
    pytest.importorskip("helion", reason="the extra helion is not installed")
    text = KERNEL.replace("n, _m = x.size()", "n, _m = x.size()\n    hl.specialize(_m)")
    (tmp_path / "mine.py").write_text(text + 'SMALL = {"columns": 50}\n' + REFERENCE)
    problem = load_problem(str(tmp_path / "mine.py"))
    assert problem.small.sizes == problem.full.sizes == {"rows": 6, "columns": 64}
    assert "_helion_row_softmax[(6,)](" in problem.seeds[0], "the kernel's own setting: static shapes"
