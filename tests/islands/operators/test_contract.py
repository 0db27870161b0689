"""What every operator owes: proposals that parse, are new, are repeatable, and nothing at all for odd sources."""

from __future__ import annotations

import ast
import random

import pytest
from support.parents import kernel_sources, parent_of

from db.hashing import program_id_of
from islands.operators import Operator, default_operators

OPERATORS = default_operators()
TECHNIQUES = [operator for operator in OPERATORS if operator.n_parents == 1]
SOURCES = kernel_sources()
DRAWS = range(6)

KERNEL = SOURCES["row_l2"]
ODD_SOURCES = {
    "empty": "",
    "no Python": "def f(:\n",
    "prose": "softmax over rows\n",
    "null byte": "x = '\0'",
    "no kernel": "import torch\n\n\ndef kernel_function(x):\n    return torch.softmax(x, 1)\n",
    "kernel never launched": KERNEL.split("def normalise")[0],
    "launch of what is not there": KERNEL[KERNEL.index("def normalise") :],
    "truncated": KERNEL[: len(KERNEL) // 2],
    "carriage returns": KERNEL.replace("\n", "\r\n"),
    "deep": "x = " + "(" * 400 + "1" + ")" * 400,
    "axis in a variable": KERNEL.replace("tl.program_id(0)", "tl.program_id(AXIS)"),
    "grid from elsewhere": KERNEL.replace("(x.shape[0],)", "make_grid(x)"),
    "one-line functions": "import triton\nimport triton.language as tl\n@triton.jit\ndef k(x): tl.store(x, 1)\n"
    "def kernel_function(x): k[(1,)](x)\n",
    "star arguments": KERNEL.replace("x, y, x.shape[1], 1e-6, BLOCK=BLOCK", "*everything, **more"),
    "other names for Triton": KERNEL.replace("import triton.language as tl", "from somewhere import tl"),
    "too long": KERNEL + "# " + "x" * 200_000,
}


def ids(operators: list[Operator]) -> list[str]:
    return [operator.name for operator in operators]


@pytest.mark.parametrize("operator", OPERATORS, ids=ids(OPERATORS))
def test_is_an_operator(operator: Operator) -> None:
    assert isinstance(operator, Operator)
    assert operator.name.isidentifier() and operator.cost > 0 and operator.n_parents in (1, 2)
    assert len(getattr(operator, "citation", "")) > 10


def test_names_are_distinct_and_there_are_enough() -> None:
    assert len(set(ids(OPERATORS))) == len(OPERATORS) >= 20


@pytest.mark.parametrize("technique", TECHNIQUES, ids=ids(TECHNIQUES))
def test_proposals_are_new_programs_and_repeatable(technique: Operator) -> None:
    applied = 0
    for source in SOURCES.values():
        parent = parent_of(source)
        for seed in DRAWS:
            proposal = technique.propose([parent], random.Random(seed))
            assert proposal == technique.propose([parent], random.Random(seed))
            if proposal is None:
                continue
            ast.parse(proposal.source)
            entry = "ModelNew" if "class ModelNew" in source else "kernel_function"
            assert program_id_of(proposal.source, entry) != parent.program_id
            assert proposal.technique == technique.name and proposal.detail
            assert proposal.parents == (parent.program_id,)
            applied += seed == DRAWS[0]
    assert applied >= 3, f"{technique.name} applies to {applied} of the kernels"


@pytest.mark.parametrize("odd", ODD_SOURCES)
def test_odd_sources_raise_nothing(odd: str) -> None:
    parent = parent_of(ODD_SOURCES[odd])
    for operator in OPERATORS:
        for seed in range(3):
            proposal = operator.propose([parent] * operator.n_parents, random.Random(seed))
            if proposal is not None:
                ast.parse(proposal.source)


@pytest.mark.parametrize("damage", range(40))
def test_damaged_sources_raise_nothing(damage: int) -> None:
    rng = random.Random(damage)
    source = rng.choice(list(SOURCES.values()))
    lines = source.split("\n")
    del lines[rng.randrange(len(lines))]
    first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[first], lines[second] = lines[second], lines[first]
    parent = parent_of("\n".join(lines))
    for operator in OPERATORS:
        operator.propose([parent] * operator.n_parents, rng)


def test_techniques_compose() -> None:
    """What one technique wrote, the others can read: forty steps in a row keep on parsing."""
    for seed in range(4):
        rng = random.Random(seed)
        parent = parent_of(SOURCES[rng.choice(sorted(SOURCES))])
        steps = 0
        for _ in range(40):
            proposal = rng.choice(TECHNIQUES).propose([parent], rng)
            if proposal is not None:
                parent = parent_of(proposal.source)
                steps += 1
        assert steps >= 8
