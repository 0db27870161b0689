"""Inductor's output run one statement at a time, to look at tensors in between and to time each step. Needs a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from evaluators.decomposition.flow import Content, Flow
from evaluators.decomposition.parts import Part, changed_inputs, inputs_of, outputs_of
from evaluators.decomposition.records import Share
from evaluators.decomposition.steps import Extern, Fill, Launch, Operand

N_TIMED = 5
_STREAMS = ("stream0", "raw_stream0")  # what torch 2.11 and 2.13 call the stream of a launch

Watcher = Callable[[int, dict[str, Any]], None]


class Replay:
    """Runs the steps of one graph with the arguments of a real call."""

    def __init__(self, flow: Flow, namespace: Mapping[str, Any], arguments: Sequence[Any]) -> None:
        self._flow = flow
        self._namespace = dict(namespace)
        self._arguments = dict(zip(flow.output.arguments, arguments, strict=True))
        self._changed = changed_inputs(flow)
        self._code = [compile(step.text, f"<step {i}>", "exec") for i, step in enumerate(flow.output.steps)]

    def run(self, before: Watcher | None = None, after: Watcher | None = None) -> list[Any]:
        """What the graph returns. Watchers see the variables before and after each step."""
        scope = self._scope()
        for index, code in enumerate(self._code):
            if before is not None:
                before(index, scope)
            exec(code, scope)
            if after is not None:
                after(index, scope)
        return [self._returned(value, scope) for value in self._flow.output.returns]

    def shares(self) -> list[Share]:
        """Device time of every launch and every library's call; what takes none is left out."""
        scope = self._scope()
        times: list[tuple[int, str, float, bool]] = []
        for index, (step, code) in enumerate(zip(self._flow.output.steps, self._code, strict=True)):
            if not isinstance(step, Launch | Extern | Fill):
                exec(code, scope)
                continue
            exec(code, scope)
            device_us = device_us_of(lambda code=code: exec(code, scope))  # type: ignore[misc]
            name = step.kernel if isinstance(step, Launch) else step.target if isinstance(step, Extern) else "zero_"
            times.append((index, name, device_us, not isinstance(step, Launch)))
        total = sum(time[2] for time in times) or 1.0
        return [
            Share(step=i, name=name, device_us=us, share=us / total, is_extern=is_extern)
            for i, name, us, is_extern in times
        ]

    def tensor(self, content: Content, scope: Mapping[str, Any], variables: Mapping[str, Any]) -> Tensor:
        """A content as a tensor of its own shape, by any variable that names its memory."""
        name = content.name if content.name in scope and content.name in variables else ""
        name = name or [n for n, bound in variables.items() if bound.memory == content.memory and n in scope][-1]
        tensor: Tensor = scope[name]
        offset = tensor.storage_offset() - variables[name].offset
        return tensor.as_strided(content.spec.shape, content.spec.strides, offset)

    def inputs(self, part: Part, scope: Mapping[str, Any]) -> list[Tensor]:
        """Copies of what goes into a part, just before its first step."""
        variables = self._flow.steps[part.first].before
        return [_copy(self.tensor(content, scope, variables)) for content in inputs_of(self._flow, part)]

    def outputs(self, part: Part, scope: Mapping[str, Any]) -> list[Tensor]:
        """Copies of what comes out, just after its last step."""
        variables = self._flow.steps[part.last + 1].before
        return [_copy(self.tensor(content, scope, variables)) for content in outputs_of(self._flow, part)]

    def _scope(self) -> dict[str, Any]:
        scope = {**self._namespace, **self._arguments}
        for name in self._changed & self._arguments.keys():
            scope[name] = _copy(self._arguments[name])
        stream = torch.cuda.current_stream().cuda_stream
        return scope | dict.fromkeys(_STREAMS, stream)

    def _returned(self, value: Any, scope: Mapping[str, Any]) -> Any:
        if not isinstance(value, Operand):
            return value
        tensor = scope[value.name]
        if not value.is_view:
            return tensor
        return tensor.as_strided(value.shape, value.strides, tensor.storage_offset() + value.offset)


def _copy(tensor: Tensor) -> Tensor:
    """The same values in the same layout, in memory of their own."""
    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor)


def device_us_of(call: Callable[[], Any]) -> float:
    """Mean device time of a call that has run before, in microseconds, from the profiler; by events without one."""
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(N_TIMED):
            call()
        torch.cuda.synchronize()
    total = sum(float(row.self_device_time_total) for row in profiled.key_averages())
    return total / N_TIMED if total > 0 else _by_events(call)


def _by_events(call: Callable[[], Any]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(N_TIMED):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1000.0 / N_TIMED
