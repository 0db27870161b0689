"""Modelled latency of the programs of one problem: traces the timed workload in a child, then asks the model."""

from __future__ import annotations

from db.records import Candidate, Capture, Hardware, Problem
from evaluators.capture.capture import TRACE_PRELOAD, trace_candidate
from evaluators.forwards import forward_of
from evaluators.model.latency import ModelledLatency, model_latency
from evaluators.sandbox.client import Zygote


def start_interpreter(preload: tuple[str, ...] = ()) -> Zygote:
    """The process that children which trace are forked from: one that interprets cannot compile. Takes seconds."""
    return Zygote(interpret=True, preload=[*TRACE_PRELOAD, *preload])


class Modeller:
    """Models programs of one problem for one GPU. Any thread may call. The zygote is the caller's."""

    def __init__(self, problem: Problem, hardware: Hardware, zygote: Zygote, *, deadline_s: float) -> None:
        self._hardware = hardware
        self._zygote = zygote
        self._deadline_s = deadline_s
        forward = forward_of(problem, problem.full, hardware)
        names = ("init_args", "input_specs", "weight_specs")
        self._forward = {**{name: forward[name] for name in names}, "workload_name": forward["workload"]}

    def model(self, candidate: Candidate, capture: Capture) -> ModelledLatency:
        """The latency of a program whose launches were captured at the timed workload.

        Raises:
            CaptureFailed: its traffic cannot be traced.
            ValueError: its launches and its traces are not the same.
        """
        traces = trace_candidate(
            self._zygote,
            source=candidate.source,
            entry_point=candidate.entry_point.value,
            hardware=self._hardware,
            deadline_s=self._deadline_s,
            **self._forward,
        )
        return model_latency(capture, traces, self._hardware)
