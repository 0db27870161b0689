"""What runs must launch what was captured."""

from __future__ import annotations

from typing import Any

import pytest

from db.records import Capture, Launch
from evaluators.gates.launches import check_launches

SEEN: dict[str, Any] = {
    "kernel": "softmax",
    "grid": [4, 1, 1],
    "constexprs": {"BLOCK": 64, "EPS": float("nan")},
    "arguments": ["float32(4, 64)(64, 1)", "int 64"],
}
ONE = Launch(num_warps=4, shared_bytes=0, text_hash="t", binding_hash="b", **SEEN)


def capture(*launches: Launch) -> Capture:
    return Capture(workload="small", target="h100", triton_version="3.7.1", launches=launches)


def test_the_same_launches_pass() -> None:
    assert check_launches(capture(ONE, ONE), [SEEN, SEEN]).passed


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ([{**SEEN, "kernel": "copy"}], "launch 0 (softmax) has kernel copy when it runs and softmax in the dry run"),
        ([{**SEEN, "grid": [1, 1, 1]}], "has grid (1, 1, 1) when it runs and (4, 1, 1) in the dry run"),
        (
            [{**SEEN, "constexprs": {"BLOCK": 8}}],
            "has compile-time arguments BLOCK=8 when it runs and BLOCK=64, EPS=nan",
        ),
        ([{**SEEN, "arguments": ["float32(4, 64)(64, 1)", "int 8"]}], "int 8) when it runs"),
        ([], "it launches 0 kernels when it runs and 1 in the dry run"),
        ([SEEN, SEEN], "it launches 2 kernels when it runs and 1 in the dry run"),
    ],
)
def test_a_difference_is_refused_and_named(seen: list[dict[str, Any]], words: str) -> None:
    result = check_launches(capture(ONE), seen)
    assert not result.passed and words in result.reason
