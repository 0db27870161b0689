"""A profiler for one problem on the first visible GPU, without what judging needs. Light until it is opened."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from db.errors import DeviceError
from db.records import Hardware, Problem
from evaluators.settings import EvaluatorSettings

if TYPE_CHECKING:
    from evaluators.profiling.profiler import Profiler

PRELOAD = ("evaluators.profiling.job",)


@contextlib.contextmanager
def open_profiler(problem: Problem, settings: EvaluatorSettings) -> Iterator[tuple[Profiler, Hardware]]:
    """A profiler, and the GPU that it profiles on. Draws the inputs of the timed workload; measures nothing.

    Raises:
        DeviceError: no GPU, or the problem does not fit in its memory.
        ProblemError: the reference fails on its own inputs.
    """
    import torch

    from evaluators.gpu_lock import GpuLock
    from evaluators.hardware import detect_hardware
    from evaluators.input_sets import ReferenceSets, list_sets
    from evaluators.profiling.inputs import shared_inputs
    from evaluators.profiling.profiler import Profiler
    from evaluators.sandbox.client import Zygote
    from evaluators.session_pool import LIMITS

    hardware = detect_hardware(0)
    first = list_sets([problem.full], settings.secret_seed)[0]._replace(has_exact=False)
    try:
        sets = ReferenceSets(problem, [first], "cuda", 0)
        sets.weights(problem.full)
    except torch.OutOfMemoryError as error:
        raise DeviceError(f"the problem does not fit on the GPU: {error}", "use smaller sizes: --shape") from error
    gpu = GpuLock(str(torch.cuda.get_device_properties(0).uuid))
    with contextlib.closing(sets), Zygote(interpret=False, preload=PRELOAD, limits=LIMITS) as zygote:
        yield Profiler(zygote, gpu, partial(shared_inputs, sets, settings.precision)), hardware
