"""The techniques on the kernels of liger-kernel, which nobody wrote for them."""

from __future__ import annotations

import ast
import importlib.util
import math
import random
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.compiling import compile_all, interpret_all
from support.parents import parent_of

from islands.operators import Operator, Parent, Proposal, default_operators
from islands.operators.freeze import freeze_autotune

TECHNIQUES = [operator for operator in default_operators() if operator.n_parents == 1]
DRAWS = range(3)


class Forward(NamedTuple):
    """A forward function, how to call it, and inputs that fit the interpreter."""

    module: str
    call: str
    inputs: str
    n_techniques: int  # that must apply to it


ROWS = "torch.randn(3, 512 if aligned else 300)"
VECTOR = "torch.randn(512 if aligned else 300)"
FORWARDS = (
    Forward("softmax", "_softmax_forward(x0)[0]", ROWS, 12),
    Forward("layer_norm", "layer_norm_forward(x0, x1, x2, 1e-6)[0]", f"{ROWS}, {VECTOR}, {VECTOR}", 10),
    Forward("rms_norm", "rms_norm_forward(x0, x1, 1e-6, 0.0, 'llama', None)[0]", f"{ROWS}, {VECTOR}", 10),
    Forward(
        "fused_add_rms_norm",
        "fused_add_rms_norm_forward(x0, x1, x2, 1e-6, 0.0, 'llama')[0]",
        f"{ROWS}, {ROWS}, {VECTOR}",
        10,
    ),
    Forward(
        "group_norm",
        "group_norm_forward(x0, 8, 4, x1, x2, 1e-6)[0]",
        "torch.randn(2, 8, 64 if aligned else 50), torch.randn(8), torch.randn(8)",
        12,
    ),
    Forward("swiglu", "swiglu_forward(x0, x1)[-1]", f"{ROWS}, {ROWS}", 10),
    Forward("geglu", "geglu_forward(x0, x1)[-1]", f"{ROWS}, {ROWS}", 10),
    Forward("relu_squared", "relu_squared_forward(x0)", ROWS, 8),
    Forward("sparsemax", "_sparsemax_forward(x0, -1)[0]", ROWS, 9),
    Forward("kl_div", "kldiv_forward_triton(x0, x1.exp(), False, 'batchmean', 1e-10)", f"{ROWS}, {ROWS}", 12),
    Forward(
        "tvd",
        "tv_distance_forward_triton(x0.exp(), x1.exp(), None, 'batchmean', -100, False)[0]",
        f"{ROWS}, {ROWS}",
        10,
    ),
    Forward(
        "cross_entropy",
        "cross_entropy_forward(x0, x1, None, -100, 0.0, 0.0, 'mean', None, False)[0]",
        f"{ROWS}, torch.randint(0, 300, (3,))",
        10,
    ),
    Forward("dyt", "liger_dyt_fwd(x0, x1, x2, x3)", f"{ROWS}, torch.randn(1), {VECTOR}, {VECTOR}", 10),
    Forward("poly_norm", "poly_norm_forward(x0, x1, x2, 1e-6)[0]", f"{ROWS}, torch.randn(3), torch.randn(1)", 9),
    Forward(
        "rope",
        "rope_forward(x0, x1, x2, x3)[0]",
        "torch.randn(1, 2, 4, 32), torch.randn(1, 2, 4, 32), torch.randn(1, 4, 32), torch.randn(1, 4, 32)",
        5,
    ),
    Forward("multi_token_attention", "_mask_inf_forward(x0)", "torch.randn(1, 2, 32, 32)", 8),
)
# judged beside parsing: those whose kernels differ most from each other
JUDGED = ("softmax", "layer_norm", "group_norm", "swiglu", "kl_div", "dyt")
N_JUDGED = 5
SHARING = ("split_reduction", "split_k")


def source_of(forward: Forward) -> str:
    """The module with an entry that calls its forward function."""
    found = importlib.util.find_spec("liger_kernel")
    assert found is not None and found.origin is not None
    text = (Path(found.origin).parent / "ops" / f"{forward.module}.py").read_text()
    n_inputs = forward.call.count("x0") + sum(f"x{i}" in forward.call for i in range(1, 5))
    names = ", ".join(f"x{i}" for i in range(n_inputs))
    entry = f"\n\ndef kernel_function({names}):\n    return {forward.call}\n"
    return freeze_autotune(f"{text}{entry}\n\ndef get_inputs(aligned):\n    return [{forward.inputs}]\n")[0]


def proposals_of(technique: Operator, parent: Parent) -> list[Proposal]:
    drawn = [technique.propose([parent], random.Random(seed)) for seed in DRAWS]
    return list(dict.fromkeys(p for p in drawn if p is not None))


@pytest.mark.parametrize("forward", FORWARDS, ids=[f.module for f in FORWARDS])
def test_proposals_are_valid_programs(forward: Forward) -> None:
    parent = parent_of(source_of(forward))
    applied = set()
    for technique in TECHNIQUES:
        for proposal in proposals_of(technique, parent):
            names, n_launches = definitions(proposal.source)
            before, n_before = definitions(parent.source)
            n_new = n_launches - n_before
            assert [n for n in names if n in before] == before and len(names) == len(before) + n_new
            assert n_new == (technique.name in SHARING)
            applied.add(technique.name)
    assert len(applied) >= forward.n_techniques, sorted(applied)


def definitions(source: str) -> tuple[list[str], int]:
    """Names of functions and the number of launches: no technique drops one, and only a loop in shares adds one."""
    nodes = list(ast.walk(ast.parse(source)))
    launches = [n for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Subscript)]
    return [n.name for n in nodes if isinstance(n, ast.FunctionDef)], len(launches)


@cache
def judged() -> list[tuple[str, str, str, Any, Any]]:
    """Module, technique and detail of proposals with their launches and outputs, after the originals themselves."""
    rng = random.Random(1)
    sources = {f.module: source_of(f) for f in FORWARDS if f.module in JUDGED}
    captured = dict(zip(sources, compile_all(list(sources.values())), strict=True))
    asked = [(module, "", "", source) for module, source in sources.items()]
    for module, source in sources.items():
        parent = parent_of(source, {launch[0]: {} for launch in captured[module]})
        fitting = [(t, p) for t in TECHNIQUES for p in proposals_of(t, parent)[:1]]
        for technique, proposal in rng.sample(fitting, N_JUDGED):
            asked.append((module, technique.name, proposal.detail, proposal.source))
    texts = [source for *_, source in asked]
    answers = zip(compile_all(texts), interpret_all(texts), strict=True)
    return [(m, t, d, *answer) for (m, t, d, _), answer in zip(asked, answers, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("module", JUDGED)
def test_proposals_compile_and_agree(module: str) -> None:
    rows = [row for row in judged() if row[0] == module]
    (_, _, _, launches, expected), *proposals = rows
    assert isinstance(launches, list) and isinstance(expected, list), (launches, expected)
    changed = 0
    for _, technique, detail, new_launches, outputs in proposals:
        assert isinstance(new_launches, list), (technique, detail, new_launches)
        assert isinstance(outputs, list), (technique, detail, outputs)
        for one, other in zip(expected, outputs, strict=True):
            close = (math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-4) for a, b in zip(one, other, strict=True))
            assert all(close), (technique, detail)
        changed += new_launches != launches
    assert changed >= 3, proposals
