"""Which evaluator serves a device. Light: what is heavy is imported when an evaluator is opened."""

from __future__ import annotations

from db.records import DeviceKind, Problem
from evaluators.evaluator import Evaluator
from evaluators.late_dynamo import delay_dynamo
from evaluators.settings import EvaluatorSettings
from evaluators.zygotes import StartingZygotes


def open_evaluator(problem: Problem, settings: EvaluatorSettings, device: DeviceKind) -> Evaluator:
    """An evaluator for the device; the first calls pay for references and baselines.

    Raises:
        DeviceError: `device` is CUDA and there is no usable GPU, or the problem does not fit in its memory.
        ProblemError: the reference fails on its own inputs.
        ConfigError: `settings.target` names no GPU of the hardware table.
    """
    if device is DeviceKind.CUDA:
        from evaluators.cuda import CudaEvaluator

        return CudaEvaluator(problem, settings)
    zygotes = StartingZygotes()  # importing what follows takes as long as half of their start
    delay_dynamo()
    from evaluators.modelled import ModelledEvaluator

    return ModelledEvaluator(problem, settings, zygotes)
