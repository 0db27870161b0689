"""What a child needs to know of a workload to run a forward on fake tensors: shapes and arguments, no data.

Light: torch is imported when there is a reference to ask.
"""

from __future__ import annotations

from typing import Any

from db.records import Hardware, Problem, TensorSpec, Workload

Forward = dict[str, Any]


def forward_of(problem: Problem, workload: Workload, hardware: Hardware) -> Forward:
    """Arguments, inputs and weights of a workload, by shape and dtype, for the GPU that is meant."""
    from evaluators.problems.reference import Reference

    reference = Reference(problem, workload)
    specs = [spec.model_dump(mode="json") if isinstance(spec, TensorSpec) else spec for spec in reference.input_specs()]
    weights = {name: _spec_of(weight).model_dump(mode="json") for name, weight in reference.weights("cpu").items()}
    return {
        "init_args": reference.init_args(),
        "input_specs": specs,
        "weight_specs": weights,
        "workload": workload.name,
        "hardware": hardware.model_dump(mode="json"),
    }


def forwards_of(problem: Problem, hardware: Hardware) -> tuple[Forward, ...]:
    """Those of the timed workload and of the small one."""
    return tuple(forward_of(problem, workload, hardware) for workload in (problem.full, problem.small))


def _spec_of(tensor: Any) -> TensorSpec:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return TensorSpec(shape=tuple(tensor.shape), dtype=dtype, strides=tuple(tensor.stride()))
