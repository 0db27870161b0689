"""Sizes that Inductor writes into a kernel become compile-time parameters."""

from __future__ import annotations

import ast

from evaluators.decomposition.fixed_sizes import fixed_sizes
from evaluators.decomposition.splice import segment

KERNEL = """\
def k(in_ptr0, xnumel, r0_numel, ynumel, XBLOCK: tl.constexpr):
    xnumel = 2048
    r0_numel = 65536
    ynumel = 4
    ynumel = ynumel + 1
    other = 7
    rnumel = r0_numel
    tl.store(in_ptr0, xnumel)
"""


def test_what_is_bound_once_is_a_parameter_and_the_rest_stays() -> None:
    function = ast.parse(KERNEL).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert segment(KERNEL, function, fixed_sizes(function)) == (
        "def k(in_ptr0, xnumel: tl.constexpr, r0_numel: tl.constexpr, ynumel, XBLOCK: tl.constexpr):\n"
        "    ynumel = 4\n    ynumel = ynumel + 1\n    other = 7\n    rnumel = r0_numel\n    tl.store(in_ptr0, xnumel)\n"
    )
