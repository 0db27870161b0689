"""Every seed of the suite can be captured, judged by the static gate, traced and modelled at its full size."""

from typing import Any

import pytest

from db.records import TensorSpec
from evaluators.gates.static import check_capture
from evaluators.hardware import load_hardware
from evaluators.model.latency import model_latency
from evaluators.problems import suite_names, suite_problem
from evaluators.problems.reference import Reference
from evaluators.sandbox import Zygote
from tests.support.programs import capture, trace


def spec_of(weight: Any) -> TensorSpec:
    return TensorSpec(shape=tuple(weight.shape), dtype=str(weight.dtype).removeprefix("torch."))


@pytest.mark.parametrize("name", suite_names())
def test_a_seed_has_a_modelled_latency(compiling: Zygote, interpreting: Zygote, name: str) -> None:
    problem = suite_problem(name)
    reference = Reference(problem, problem.full)
    forward: dict[str, Any] = {
        "hardware": load_hardware("h200"),
        "entry_point": problem.entry_point,
        "init_args": reference.init_args(),
        "weights": {weight: spec_of(value) for weight, value in reference.weights("cpu").items()},
    }
    captured = capture(compiling, problem.seeds[0], *reference.input_specs(), **forward)
    answer = check_capture(captured)
    assert answer.passed, answer.reason
    traces = trace(interpreting, problem.seeds[0], *reference.input_specs(), **forward)
    modelled = model_latency(captured, traces, load_hardware("h200"))
    assert modelled.floor_us < modelled.device_us < 5 * modelled.floor_us
    assert 5 < modelled.device_us < 5000
