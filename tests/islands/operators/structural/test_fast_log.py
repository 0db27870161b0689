"""fast_log against logarithms in double precision, for small arguments and at infinity."""

from __future__ import annotations

import random

import numpy as np
from support.compiling import compile_all, interpret_all
from support.parents import kernel_sources, parent_of

from islands.operators.structural.fast_log import FastLog

HEAD = (
    "import torch\nimport triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n\n\n"
    "@triton.jit\ndef log_kernel(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr):\n    at = tl.arange(0, BLOCK)\n"
    "    x = tl.load(x_ptr + at)\n"
    "    tl.store(y_ptr + at, libdevice.log1p(libdevice.log1p(x)))\n    tl.store(z_ptr + at, tl.log(x))\n\n\n"
    "def kernel_function(x):\n    y, z = torch.empty_like(x), torch.empty_like(x)\n"
    "    log_kernel[(1,)](x, y, z, BLOCK=4096)\n    return y, z, x\n"
)
SPREAD = HEAD + (
    "\n\ndef get_inputs(aligned):\n    x = torch.logspace(-9, 4, 4096)\n"
    '    x[:3] = torch.tensor([0.0, float("inf"), float("nan")])\n    return [x]\n'
)
UNIT = 2.0**-24


def variants(source: str) -> dict[str, str]:
    """Sources by what was said of them."""
    found = [FastLog().propose([parent_of(source)], random.Random(seed)) for seed in range(12)]
    return {p.detail: p.source for p in found if p is not None}


def test_applies_to_logarithms_and_imports_the_library_where_it_has_to() -> None:
    found = {name for name, source in kernel_sources().items() if variants(source)}
    assert found == {"inductor_log_softmax", "log_softmax", "row_entropy"}
    without = HEAD.replace("from triton.language.extra import libdevice\n", "").replace("libdevice.log1p", "tl.log")
    (imported,) = variants(without).values()
    assert imported.count("from triton.language.extra import libdevice\n") == 1
    assert not variants(without + "libdevice = None\n")


def test_errors_are_a_few_units_and_relative_where_what_is_lost_is_made_good() -> None:
    plain, compensated = (
        variants(SPREAD)[f"log by the special function unit{more}, in log_kernel"]
        for more in ("", ", with what 1 + x loses")
    )
    relative = []
    for answer in interpret_all([plain, compensated]):
        of_more, log, inputs = (np.array(values) for values in answer)
        with np.errstate(divide="ignore"):
            exact, exact_log = np.log1p(np.log1p(inputs)), np.log(inputs)
        assert of_more[:2].tolist() == [0.0, np.inf] and np.isnan(of_more[2]) and log[0] == -np.inf
        errors = np.abs(of_more[3:] - exact[3:])
        assert errors.max() < 8 * UNIT and np.allclose(log[3:], exact_log[3:], rtol=1e-6, atol=4 * UNIT)
        relative.append((errors / exact[3:]).max())
    assert relative[1] < 8 * UNIT < 1e-2 < relative[0]  # below 2^-24 the sum is 1, and its logarithm nothing


def test_compiles_to_other_code() -> None:
    codes = [launches[0][4] for launches in compile_all([SPREAD, *variants(SPREAD).values()])]
    assert len(set(codes)) == 3
