"""Modelled latency of the programs of one problem: traces the timed workload in a child, then asks the model."""

from __future__ import annotations

from db.records import Candidate, Capture, Hardware, PrecisionClass, Problem, TorchOp
from evaluators.capture.capture import trace_candidate
from evaluators.forwards import forward_of
from evaluators.gates.launches import check_launches
from evaluators.model.latency import ModelledLatency, model_latency
from evaluators.problems.sizes import with_sizes
from evaluators.sandbox.client import Zygote


class Modeller:
    """Models programs of one problem for one GPU. Any thread may call. The zygote is the caller's."""

    def __init__(self, problem: Problem, hardware: Hardware, zygote: Zygote, *, deadline_s: float) -> None:
        self._hardware = hardware
        self._zygote = zygote
        self._deadline_s = deadline_s
        self._reference_source = with_sizes(problem.source, problem.full.sizes)
        forward = forward_of(problem, problem.full, hardware)
        names = ("init_args", "input_specs", "weight_specs")
        self._forward = {**{name: forward[name] for name in names}, "workload_name": forward["workload"]}

    def model(self, candidate: Candidate, capture: Capture) -> ModelledLatency:
        """The latency of a program whose launches were captured at the timed workload.

        Raises:
            CaptureFailed: its traffic cannot be traced.
            ValueError: its launches and its traces are not the same.
        """
        return self._model(candidate.source, candidate.entry_point.value, capture)

    def model_reference(self, capture: Capture, precision: PrecisionClass) -> ModelledLatency:
        """The latency of the reference, run eagerly, from its capture at the timed workload.

        A reference that launches no kernel of Triton's needs no trace. Under the relaxed class its float32 products
        may be TF32 ones, as they may where it is measured.

        Raises:
            CaptureFailed, ValueError: as `model` does, or it does nothing that takes time.
        """
        if not capture.launches and not capture.torch_ops:
            raise ValueError("it calls no operation that takes time")
        if precision is PrecisionClass.RELAXED:
            capture = capture.model_copy(update={"torch_ops": tuple(map(_in_tf32, capture.torch_ops))})
        if not capture.launches:
            return model_latency(capture, [], self._hardware)
        return self._model(self._reference_source, "Model", capture)

    def _model(self, source: str, entry_point: str, capture: Capture) -> ModelledLatency:
        traces = trace_candidate(
            self._zygote,
            source=source,
            entry_point=entry_point,
            hardware=self._hardware,
            deadline_s=self._deadline_s,
            **self._forward,
        )
        same = check_launches(capture, [trace.model_dump(include=_ASKED) for trace in traces])
        if not same.passed:
            raise ValueError(same.reason)
        return model_latency(capture, traces, self._hardware)


_ASKED = {"kernel", "grid", "constexprs", "arguments"}


def _in_tf32(op: TorchOp) -> TorchOp:
    flops = {"tf32" if kind == "fp32" else kind: n for kind, n in op.flops.items()}
    return op.model_copy(update={"flops": flops})
