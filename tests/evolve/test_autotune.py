"""Winners that differ in knobs become one autotuned program that runs, and goes back into the same candidates."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import evaluators.suite.seeds as seeds
from evolve.autotune import AutotuneError, is_same_kernel, merge
from islands.operators.freeze import freeze_autotune

SEEDS = Path(next(iter(seeds.__path__)))
SOFTMAX = (SEEDS / "softmax.py").read_text()
MATMUL = (SEEDS / "matmul.py").read_text()


def other(source: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    return source


def decorators(source: str, kernel: str) -> list[str]:
    tree = ast.parse(source)
    (function,) = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == kernel)
    return [ast.unparse(d) for d in function.decorator_list]


def decorators_of_kernels(source: str) -> list[list[str]]:
    functions = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef)]
    return [[ast.unparse(d) for d in f.decorator_list] for f in functions if f.decorator_list]


def test_what_differs_becomes_configurations_keyed_by_sizes() -> None:
    merged = merge([SOFTMAX, other(SOFTMAX, ("BLOCK = 1024", "BLOCK = 8192"), ("num_warps=4", "num_warps=16"))])
    first, second = decorators(merged, "softmax_kernel")
    assert first == (
        "triton.autotune(configs=[triton.Config({'BLOCK': 1024}, num_warps=4), "
        "triton.Config({'BLOCK': 8192}, num_warps=16)], key=['n_cols'])"
    )
    assert second == "triton.jit"
    assert "BLOCK = " not in merged
    assert "        softmax_kernel[(n_rows,)](x, out, n_cols)\n" in merged


def test_the_rest_of_the_program_keeps_its_comments() -> None:
    merged = merge([SOFTMAX, other(SOFTMAX, ("num_warps=4", "num_warps=16"))])
    kept = set(merged.splitlines())
    lost = [line for line in SOFTMAX.splitlines() if line not in kept]
    assert lost == ["        softmax_kernel[(n_rows,)](x, out, n_cols, BLOCK=BLOCK, num_warps=4)"]


def test_the_grid_follows_the_chosen_configuration() -> None:
    merged = merge([MATMUL, other(MATMUL, ("BLOCK_M = 128", "BLOCK_M = 64"))])
    assert "lambda META: (triton.cdiv(M, META['BLOCK_M']) * triton.cdiv(N, BLOCK_N),)" in merged
    assert "BLOCK_N=BLOCK_N" in merged and "BLOCK_M=BLOCK_M" not in merged
    assert decorators(merged, "matmul_kernel")[0].endswith("key=['M', 'N', 'K'])")


def test_equal_configurations_are_listed_once() -> None:
    merged = merge([SOFTMAX, other(SOFTMAX, ("num_warps=4", "num_warps=8")), SOFTMAX])
    assert merged.count("triton.Config(") == 2


def test_programs_that_agree_stay_as_they_are() -> None:
    assert "autotune" not in merge([SOFTMAX, SOFTMAX])


def test_comments_and_names_of_files_make_no_other_kernel() -> None:
    assert is_same_kernel(SOFTMAX, other(SOFTMAX, ("num_warps=4", "num_warps=8"), ("# backwards", "# from behind")))
    assert not is_same_kernel(SOFTMAX, other(SOFTMAX, ("tl.exp(x - new_max)", "tl.exp2(x - new_max)")))


def test_another_kernel_cannot_be_merged() -> None:
    with pytest.raises(AutotuneError, match="more than launch knobs"):
        merge([SOFTMAX, other(SOFTMAX, ("scale = 1.0 / row_sum", "scale = 1 / row_sum"))])


def test_a_knob_that_host_code_needs_cannot_vary() -> None:
    needs = other(SOFTMAX, ("out = torch.empty_like(x)\n", "out = torch.empty_like(x)\n        y = n_cols // BLOCK\n"))
    with pytest.raises(AutotuneError, match="outside the launch"):
        merge([needs, other(needs, ("BLOCK = 1024", "BLOCK = 2048"))])


@pytest.mark.parametrize("name", sorted(p.stem for p in SEEDS.glob("*.py")))
def test_warps_of_every_seed_merge_and_come_apart_again(name: str) -> None:
    source = (SEEDS / f"{name}.py").read_text()
    twin = re.sub(r"num_warps=(\d+)", lambda m: f"num_warps={2 * int(m[1])}", source)
    assert twin != source
    merged = merge([source, twin])
    assert "triton.autotune" in merged
    frozen = freeze_autotune(merged)
    assert len(frozen) == 2 and all(is_same_kernel(one, frozen[0]) for one in frozen)
    assert decorators_of_kernels(merge(frozen)) == decorators_of_kernels(merged)
