"""A program is taken out of a file with what it needs and nothing else."""

from __future__ import annotations

import ast

from evaluators.problems.parts import extract, needed_names, squeezed

TEXT = """\
import torch

SIZE = 4
SPARE = 5
PAIR, OTHER = SIZE, 2

torch.manual_seed(SPARE)


@decorate(
    PAIR,
)
def helper():
    return PAIR


def unused():
    return helper()


class Wanted:
    def run(self):
        return helper()


if __name__ == "__main__":
    print(unused())
"""


def test_needs_are_followed_through_functions_and_assignments() -> None:
    assert needed_names(ast.parse(TEXT), ["Wanted"]) == {"Wanted", "helper", "PAIR", "OTHER", "SIZE"}


def test_what_is_not_needed_becomes_blank_lines() -> None:
    taken = extract(TEXT, ["Wanted"])
    assert "unused" not in taken and "__main__" not in taken
    assert "@decorate" in taken and "PAIR, OTHER" in taken
    assert "SPARE = 5" in taken, "a statement that stays needs it"
    assert taken.splitlines().index("class Wanted:") == TEXT.splitlines().index("class Wanted:")
    ast.parse(taken)


def test_decorators_go_with_what_they_decorate() -> None:
    taken = extract(TEXT.replace("return helper()", "return 1"), ["Wanted"])
    assert "decorate" not in taken and "helper" not in taken


def test_squeezing_leaves_two_blank_lines_at_most() -> None:
    assert squeezed("\n\na\n\n\n\n\nb\n\n") == "a\n\n\nb\n"


IMPORTS = """\
from __future__ import annotations
import torch, triton
import torch.nn.functional as F
from mine import Model, kernel
from mine.blocks import *
import mine.registered
import os; SIZE = 4


def wanted(x):
    return kernel(torch.relu(x))
"""


def test_a_program_leaves_the_imports_that_it_does_not_need_behind() -> None:
    taken = extract(IMPORTS, ["wanted"], keeps_imports=False)
    head = [
        "from __future__ import annotations",
        "import torch",
        "",
        "from mine import kernel",
        "from mine.blocks import *",
    ]
    assert taken.splitlines()[:7] == [*head, "", "import os; SIZE = 4"]
    assert taken.splitlines()[9:] == IMPORTS.splitlines()[9:], "lines stay where they were"


def test_a_reference_keeps_imports_that_may_register_something() -> None:
    assert extract(IMPORTS, ["wanted"]) == IMPORTS


def test_an_import_over_several_lines_becomes_one() -> None:
    text = "from mine import (\n    Model,\n    kernel,\n)\nx = kernel\n"
    assert extract(text, ["x"], keeps_imports=False) == "from mine import kernel\n\n\n\nx = kernel\n"


def test_an_import_is_a_name_that_is_needed() -> None:
    text = "from mine import Model\nclass ModelNew(Model):\n    pass\n"
    assert needed_names(ast.parse(text), ["ModelNew"]) == {"ModelNew", "Model"}
