"""Modules of importable packages: classes and instances, with inputs of a file or a function; errors are kind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from db.errors import ConfigError, ProblemError
from db.records import Problem
from evaluators.problems import load_problem
from evaluators.problems.aside import ask
from evaluators.problems.importable import Importable, read_importable, with_inputs
from evaluators.problems.importing import looked_at
from evaluators.problems.reference import Reference

BLOCKS = """\
import torch


class Block(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = torch.nn.Linear(dim, dim)
        self.register_buffer("shift", torch.ones(dim))

    def forward(self, x):
        return torch.relu(self.linear(x)) + self.shift


class Plain:
    pass


block = Block(16)
number = 3


def example_inputs():
    return [torch.randn(4, 16)]


def get_init_inputs():
    return [16]
"""

INPUTS = """\
import torch

batch = 128


def get_inputs():
    return [torch.randn(batch, 16)]
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an importable module; the working folder has `inputs.py`."""
    name = f"blocks_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(BLOCKS)
    (tmp_path / "inputs.py").write_text(INPUTS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    sys.modules.pop(name, None)


def refusal(module: str, name: str, inputs: str = "", *, has_inputs: bool = False) -> ProblemError:
    with pytest.raises(ProblemError) as caught:
        looked_at({"module": module, "name": name, "inputs": inputs, "has_inputs": has_inputs, "has_init": False})
    assert caught.value.hint
    return caught.value


def answers(problem: Problem) -> list[tuple[int, ...]]:
    reference = Reference(problem, problem.small)
    outputs = reference.expected(reference.draw_inputs(0, "cpu"))
    assert [tuple(spec.shape) for spec in reference.output_specs()] == [tuple(output.shape) for output in outputs]
    return [tuple(output.shape) for output in outputs]


def test_a_spelling_is_read() -> None:
    assert read_importable("mylib.blocks:Block") == Importable("mylib.blocks", "Block")
    assert read_importable("torch.nn:GELU@in/puts.py") == Importable("torch.nn", "GELU", "in/puts.py")
    assert read_importable("a:b@c.d:e") == Importable("a", "b", "c.d:e")
    assert [read_importable(text) for text in ("softmax", "folder/my.py", ":Block", "mylib:", "1a:b")] == [None] * 5


def test_inputs_that_are_given_apart_become_part_of_the_spelling() -> None:
    assert with_inputs("torch.nn:GELU", "inputs.py") == "torch.nn:GELU@inputs.py"
    for spec in ("softmax", "torch.nn:GELU@other.py"):
        with pytest.raises(ConfigError, match="takes no --inputs"):
            with_inputs(spec, "inputs.py")


def test_a_module_of_torch_runs_with_the_inputs_of_a_file(package: str) -> None:
    problem = load_problem("torch.nn:GELU@inputs.py", sizes={"batch": 8})
    assert (problem.name, problem.kind, problem.full.sizes) == ("GELU", "kernelbench", {"batch": 8})
    assert problem.source.startswith(INPUTS), "lines are those of the file"
    assert answers(problem) == [(8, 16)]


def test_a_class_takes_inputs_and_arguments_of_its_package(package: str) -> None:
    problem = load_problem(f"{package}:Block@{package}:example_inputs")
    assert answers(problem) == [(4, 16)]
    assert set(Reference(problem, problem.full).weights("cpu")) == {"linear.weight", "linear.bias", "shift"}


def test_an_instance_keeps_its_weights_and_is_copied(package: str) -> None:
    problem = load_problem(f"{package}:block@inputs.py", sizes={"batch": 8})
    assert answers(problem) == [(8, 16)]
    reference = Reference(problem, problem.full)
    made = sys.modules[package].block
    weights = reference.weights("cpu")
    assert weights["linear.weight"].equal(made.linear.weight)
    assert weights["linear.weight"].data_ptr() != made.linear.weight.data_ptr()
    assert [spec.shape for spec in reference.weight_specs()] == [(16,), (16, 16), (16,)]


def test_an_edited_module_is_another_problem(package: str) -> None:
    question = {"module": package, "name": "Block", "inputs": "", "has_inputs": True, "has_init": True}
    before = looked_at(question)["digest"]
    Path(f"{package}.py").write_text(BLOCKS.replace("relu", "tanh"))
    assert looked_at(question)["digest"] != before


def test_what_cannot_be_imported_says_why(package: str) -> None:
    assert (
        refusal("no_such_package", "Block").message
        == "no_such_package cannot be imported: no package 'no_such_package'"
    )
    Path("broken_by_itself.py").write_text("1 / 0\n")
    assert "ZeroDivisionError" in refusal("broken_by_itself", "Block").message


def test_a_name_that_is_not_there_suggests_the_near_one(package: str) -> None:
    assert refusal(package, "Blok").hint == "did you mean 'Block'?"
    assert "its modules: Block, block" in refusal(package, "zzzz").hint


def test_what_is_no_module_is_told_so(package: str) -> None:
    assert f"{package}:Plain is the class Plain, not a torch.nn.Module" in refusal(package, "Plain").message
    assert f"{package}:number is of type int, not" in refusal(package, "number").message


def test_missing_inputs_say_how_they_are_given(package: str) -> None:
    error = refusal(package, "Block")
    assert "has no inputs" in error.message and "--inputs FILE" in error.hint
    assert refusal(package, "Block", f"{package}:exampl_inputs").hint == "did you mean 'example_inputs'?"
    assert "is no function" in refusal(package, "Block", f"{package}:number").message
    assert "takes arguments" in refusal(package, "Block", has_inputs=True).message
    Path("empty.py").write_text("x = 1\n")
    with pytest.raises(ProblemError, match=r"empty.py: no get_inputs"):
        load_problem(f"{package}:Block@empty.py")


def test_what_a_process_answers_is_told_here(package: str) -> None:
    head = "from db.errors import ProblemError\nfrom evaluators.problems.aside import serve\ndef answer(question):\n"
    Path("echo_aside.py").write_text(head + "    print('noise')\n    return question\nserve(answer)\n")
    assert ask("echo_aside", {"n": 1}) == {"n": 1}
    Path("refuse_aside.py").write_text(head + "    raise ProblemError('wrong', 'mend it')\nserve(answer)\n")
    with pytest.raises(ProblemError, match="wrong") as caught:
        ask("refuse_aside", {})
    assert caught.value.hint == "mend it"
    Path("dying_aside.py").write_text("raise SystemExit('out of luck')\n")
    with pytest.raises(ProblemError, match="exit status 1: out of luck"):
        ask("dying_aside", {})


def test_a_program_beside_an_imported_model_stands_on_its_own(package: str) -> None:
    program = (
        f"from {package} import Block as Model, number\nimport torch\nfrom torch import nn\n\n"
        "class ModelNew(nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n\n"
        "def get_inputs():\n    return [torch.randn(4, 16)]\n\ndef get_init_inputs():\n    return [16]\n"
    )
    Path("both.py").write_text(program)
    problem = load_problem("both.py")
    assert package not in problem.seeds[0] and "import torch" in problem.seeds[0]
    assert answers(problem) == [(4, 16)]
    Path("both.py").write_text(program.replace("class ModelNew(nn.Module)", "class ModelNew(Model)"))
    with pytest.raises(ProblemError, match="ModelNew uses Model"):
        load_problem("both.py")
