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
