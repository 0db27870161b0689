"""A process of its own for the reference: the same session as a candidate's, with trusted code inside.

Started as `python -P -m evaluators.baseline_session FD`, where FD is one end of a socket pair; the first message says
which shared memory to open. It compiles with torch.compile, which a sandboxed child could not (its caches outlive it).
"""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Callable
from typing import Any

import torch

from db.records import EntryPoint, Problem
from evaluators.cuda_session import Message, Session
from evaluators.gpu_lock import GpuLock
from evaluators.problems.reference import Reference
from evaluators.sandbox.channel import Channel
from evaluators.timing import Program

COMPILE_OPTIONS: dict[str, dict[str, str]] = {
    "compile": {},
    "max-autotune": {"mode": "max-autotune-no-cudagraphs"},
}
_EXTERN = re.compile(r"\bextern_kernels\.(\w+)\(|\btorch\.ops\.(\w+)\.(\w+)\.\w+\(")
# what generated code uses to check and to allocate, which is no operation of a library
_NOT_OPERATIONS = {"_reinterpret_tensor", "assert_size_stride", "empty_strided_cuda"}


class BaselineSession(Session):
    """Runs the reference itself: eagerly, or compiled in one of the ways of `COMPILE_OPTIONS`."""

    def __init__(self, channel: Channel, payload: Message) -> None:
        _autotune_alone(GpuLock(payload["gpu"]))
        super().__init__(channel, payload)

    def load(self, message: Message) -> Message:
        """Loads one way of running the full workload; a way that fails answers with `error`."""
        problem = Problem.model_validate(message["problem"])
        reference = Reference(problem, problem.full)
        inputs = self.inputs_of(problem.full.name)
        try:
            program, operations = _way(reference, problem, message["way"], inputs)
            self.programs[problem.full.name] = program
        except Exception as error:  # compilers fail in their own ways; the other baselines stand
            return {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0][:300]}", "extern_ops": []}
        return {"error": "", "extern_ops": operations}


def _way(reference: Reference, problem: Problem, way: str, inputs: list[Any]) -> tuple[Program, list[str]]:
    model = reference.model("cuda")
    if problem.entry_point is EntryPoint.FUNCTION or way not in COMPILE_OPTIONS:
        return model, []
    torch._dynamo.reset()
    compiled = torch.compile(model, **COMPILE_OPTIONS[way])
    operations = extern_operations(compiled, inputs)
    compiled(*inputs)
    torch.cuda.synchronize()
    return compiled, operations


def _autotune_alone(gpu: GpuLock) -> None:
    """Let Inductor's autotuning measure only while nobody else uses the GPU.

    Compilation takes many seconds and needs no GPU; what autotuning chooses decides how strong the baseline is.
    """
    from torch._inductor.runtime import benchmarking

    for name in ("benchmark_gpu", "benchmark_gpu_with_cuda_graph"):
        measure = getattr(benchmarking.benchmarker, name, None)
        if measure is not None:
            setattr(benchmarking.benchmarker, name, _under(gpu, measure))


def _under(gpu: GpuLock, measure: Callable[..., Any]) -> Callable[..., Any]:
    def alone(*args: Any, **kwargs: Any) -> Any:
        with gpu:
            return measure(*args, **kwargs)

    return alone


def extern_operations(compiled: Callable[..., Any], inputs: list[Any]) -> list[str]:
    """The operations of libraries that a compiled function calls, as "aten.mm", read from its generated code.

    The first call compiles.
    """
    from torch._inductor.utils import run_and_get_code

    _, sources = run_and_get_code(compiled, *inputs)
    return operations_in("\n".join(sources))


def operations_in(source: str) -> list[str]:
    """The library operations named in code that Inductor generated, sorted: "aten.mm", "aten.convolution"."""
    found = set()
    code = "\n".join(line for line in source.splitlines() if not line.lstrip().startswith("#"))
    for extern, namespace, name in _EXTERN.findall(code):
        if extern and extern not in _NOT_OPERATIONS:
            found.add(f"aten.{extern}")
        elif name and name not in _NOT_OPERATIONS:
            found.add(f"{namespace}.{name}")
    return sorted(found)


def main() -> None:
    """Serves the process at the other end of the inherited socket until it closes."""
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    BaselineSession(channel, channel.receive()).serve()


if __name__ == "__main__":
    main()
