"""fast_tanh against the tangent in double precision, near zero, far from it, and at infinity."""

from __future__ import annotations

import math
import random

import numpy as np
from support.compiling import compile_all, interpret_all
from support.parents import kernel_sources, parent_of

from islands.operators.structural.fast_tanh import FastTanh

SOURCES = kernel_sources()
HEAD = (
    "import torch\nimport triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n\n\n"
    "@triton.jit\ndef tanh_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):\n    at = tl.arange(0, BLOCK)\n"
    "    tl.store(y_ptr + at, libdevice.tanh(tl.load(x_ptr + at)))\n\n\n"
    "def kernel_function(x):\n    y = torch.empty_like(x)\n    tanh_kernel[(1,)](x, y, BLOCK=4096)\n    return y, x\n"
)
SPREAD = HEAD + (
    "\n\ndef get_inputs(aligned):\n    x = torch.randn(4096) * torch.logspace(-4, 2, 4096)\n"
    '    x[:3] = torch.tensor([float("inf"), float("-inf"), float("nan")])\n    return [x]\n'
)
UNIT = 2.0**-24


def variants(source: str) -> dict[str, str]:
    """Sources by what was said of them."""
    found = [FastTanh().propose([parent_of(source)], random.Random(seed)) for seed in range(12)]
    return {p.detail: p.source for p in found if p is not None}


def test_applies_to_the_tangent_of_libdevice_alone() -> None:
    found = {name for name, source in SOURCES.items() if variants(source)}
    assert found == {"inductor_gates", "inductor_gelu", "inductor_layer_norm"}


def test_errors_are_a_few_units_and_relative_with_the_series() -> None:
    by_power, with_series = (variants(SPREAD)[f"tanh of tanh_kernel by a power{s}"] for s in ("", " or a series"))
    for answer, relative in zip(interpret_all([by_power, with_series]), (math.inf, 1e-6), strict=True):
        values, inputs = (np.array(v) for v in answer)
        assert values[:2].tolist() == [1.0, -1.0] and math.isnan(values[2])
        expected = np.tanh(inputs[3:])
        errors = np.abs(values[3:] - expected)
        assert errors.max() < 8 * UNIT and (errors / np.abs(expected)).max() < relative


def test_compiles_to_other_code() -> None:
    source = SOURCES["inductor_layer_norm"]
    codes = [launches[0][4] for launches in compile_all([source, *variants(source).values()])]
    assert len(set(codes)) == 3
