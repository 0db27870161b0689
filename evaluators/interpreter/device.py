"""Host code that asks for a GPU goes on without one: its tensors say that they are on CUDA and lie on the CPU.

Only for a process that runs one candidate under the interpreter. What is asked of the device is answered as in a
capture, so that a program cannot tell which of the two it is in; latency is never taken here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from db.records import Hardware
from evaluators.capture.fake_device import ANSWERS, CUDA_0, answering
from evaluators.gates.integrity import poison_
from evaluators.hardware import load_hardware

ANY_GPU = "h100"


class _OnCpu(TorchFunctionMode):  # type: ignore[misc]
    """Answers what is asked about devices, and sends to the CPU what is meant for CUDA."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if name == "__get__" and (answer := _ATTRIBUTES.get(getattr(function, "__self__", None))) is not None:
            return answer
        if function in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if function in ANSWERS:
            return ANSWERS[function]
        result = function(*map(_to_cpu, args), **{key: _to_cpu(value) for key, value in (kwargs or {}).items()})
        if function in _UNWRITTEN and result.dtype is not torch.bool:
            poison_(result)
        return result


# What these hand out holds nothing, or an earlier answer: a program that relies on either is wrong
_UNWRITTEN = frozenset(
    {
        *(torch.empty, torch.empty_like, torch.empty_strided, torch.empty_permuted),
        *(torch.Tensor.new_empty, torch.Tensor.new_empty_strided),
    }
)
_ATTRIBUTES: dict[Any, Any] = {torch.Tensor.device: CUDA_0, torch.Tensor.is_cuda: True, torch.Tensor.is_cpu: False}


def _to_cpu(value: Any) -> Any:
    is_cuda_text = isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))
    is_cuda_device = isinstance(value, torch.device) and value.type == "cuda"
    return torch.device("cpu") if is_cuda_text or is_cuda_device else value


@contextmanager
def pretended_gpu(hardware: Hardware | None = None) -> Iterator[None]:
    """Inside, torch seems to have one GPU, as it does to a capture: the target, or an H100 where none is meant.
    Everything is as before afterwards."""
    with answering(hardware or load_hardware(ANY_GPU)), _OnCpu():
        yield
