"""Host code that asks for a GPU goes on without one: its tensors say that they are on CUDA and lie on the CPU.

Only for a process that runs one candidate under the interpreter. The answers decide how work is cut, not what it
computes; latency is never taken here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode

from evaluators.gates.integrity import poison_

CUDA_0 = torch.device("cuda", 0)

# as an H100 SXM answers, with fewer multiprocessors: a persistent grid should stay short under the interpreter
PROPERTIES = SimpleNamespace(
    name="interpreter",
    major=9,
    minor=0,
    total_memory=80 * 1024**3,
    multi_processor_count=16,
    warp_size=32,
    L2_cache_size=50 * 1024**2,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    regs_per_multiprocessor=65536,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472,
)


class _OnCpu(TorchFunctionMode):  # type: ignore[misc]
    """Answers what is asked about devices, and sends to the CPU what is meant for CUDA."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if name == "__get__" and (answer := _ATTRIBUTES.get(getattr(function, "__self__", None))) is not None:
            return answer
        if function in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if function is torch.Tensor.get_device:
            return 0
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


class _Ignored:
    """A device guard, a stream or an event: whatever is done with it changes nothing."""

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        self.cuda_stream = 0
        self.device = CUDA_0

    def __enter__(self) -> _Ignored:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        return _always(None)


def _always(answer: Any) -> Callable[..., Any]:
    return lambda *_arguments, **_options: answer


def _cuda_answers() -> dict[str, Any]:
    """Functions of torch.cuda that host code asks, by name."""
    memory = PROPERTIES.total_memory
    answers = {
        "is_available": True,
        "is_initialized": True,
        "is_bf16_supported": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_properties": PROPERTIES,
        "get_device_capability": (PROPERTIES.major, PROPERTIES.minor),
        "get_device_name": PROPERTIES.name,
        "mem_get_info": (memory, memory),
    }
    ignored = ("init", "_lazy_init", "set_device", "synchronize", "empty_cache", "manual_seed", "manual_seed_all")
    guards = ("current_stream", "default_stream", "device", "device_of", "stream", "Stream", "Event")
    return {
        **{name: _always(answer) for name, answer in answers.items()},
        **{name: _always(None) for name in ignored},
        **{name: type(name, (_Ignored,), {}) for name in guards},
    }


@contextmanager
def pretended_gpu() -> Iterator[None]:
    """Inside, torch seems to have one GPU. Everything is as before afterwards."""
    with ExitStack() as stack:
        for name, answer in _cuda_answers().items():
            stack.enter_context(patch.object(torch.cuda, name, answer, create=True))
        stack.enter_context(_OnCpu())
        yield
