"""Kernels and host code that this project was not written for: the forward functions of liger-kernel."""

import pytest

from evaluators.capture.capture import CaptureFailed
from evaluators.hardware import load_hardware
from evaluators.model.latency import model_latency
from evaluators.sandbox import Zygote
from tests.evaluators.capture.liger_cases import CASES, LigerCase
from tests.support.programs import capture, trace

pytest.importorskip("liger_kernel")

MOST_FAILURES = 1
TRACED = CASES[::4]  # each imports all of liger-kernel under the interpreter


def test_forward_functions_are_captured(compiling: Zygote) -> None:
    failures = []
    for case in CASES:
        try:
            launches = capture(compiling, case.source, *case.inputs, entry_point="kernel_function").launches
            assert launches and not any(launch.unwritten_reads for launch in launches)
        except CaptureFailed as failed:
            failures.append(f"{case.name}: {failed.reason}")
    assert len(CASES) >= 16
    assert len(failures) <= MOST_FAILURES, failures


@pytest.mark.parametrize("case", TRACED, ids=lambda case: case.name)
def test_forward_functions_are_traced_and_modelled(case: LigerCase, compiling: Zygote, interpreting: Zygote) -> None:
    captured = capture(compiling, case.source, *case.inputs, entry_point="kernel_function")
    traces = trace(interpreting, case.source, *case.inputs, entry_point="kernel_function")
    modelled = model_latency(captured, traces, load_hardware("h100"))
    assert modelled.device_us > modelled.floor_us > 0
