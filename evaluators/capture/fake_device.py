"""A GPU that is not there: candidates see CUDA tensors and a device of the target, and no CUDA context is made.

Fake tensors live on the CPU, because a build of torch without CUDA has no device guard for it, and one with CUDA would
make a context. What a candidate can see of that is answered as the target GPU would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.overrides import TorchFunctionMode

from db.records import Hardware
from evaluators.capture.tensors import AddressSpace

CUDA_0 = torch.device("cuda", 0)
ANSWERS: dict[Any, Any] = {  # of a tensor on the GPU
    torch.Tensor.get_device: 0,
    torch.Tensor.is_pinned: False,
    torch.Tensor.is_shared: True,
}
WARP_SIZE = 32


class _Inside:
    """How deep we are in torch's own code: there, fake tensors say that they are on the CPU."""

    depth = 0


@contextmanager
def inside_torch() -> Iterator[None]:
    """Torch's code sees the CPU, the candidate's sees CUDA."""
    _Inside.depth += 1
    try:
        yield
    finally:
        _Inside.depth -= 1


def _device(tensor: Any) -> Any:
    if tensor.fake_mode.in_kernel_invocation:
        return torch.device("meta")
    return tensor.fake_device if _Inside.depth else CUDA_0


def _printed(tensor: Any) -> str:
    """Text of a tensor has its values in it: whoever asks for it reads the device."""
    tensor.new_empty(()).item()
    return f"tensor(..., size={tuple(tensor.shape)})"


class OnCpu(TorchFunctionMode):  # type: ignore[misc]
    """Sends what is asked of CUDA to the CPU. Tensors that host code makes of numbers keep their values."""

    def __init__(self, fake_mode: Any) -> None:
        super().__init__()
        self._fake_mode = fake_mode

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.device:
            return function(*args, **(kwargs or {}))
        if function in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if function in ANSWERS:
            return ANSWERS[function]
        if function is torch.tensor and _to_cpu((kwargs or {}).get("device")) == (kwargs or {}).get("device"):
            return self._constant(args, kwargs or {})
        named = {k: _to_cpu(v) for k, v in (kwargs or {}).items() if k != "pin_memory"}
        with inside_torch():
            return function(*map(_to_cpu, args), **named)

    def _constant(self, args: Any, kwargs: dict[str, Any]) -> Any:
        with unset_fake_temporarily():
            value = torch.tensor(*args, **kwargs)
        return self._fake_mode.fake_tensor_converter.from_real_tensor(self._fake_mode, value, make_constant=True)


def _to_cpu(value: Any) -> Any:
    is_cuda_text = isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))
    is_cuda_device = isinstance(value, torch.device) and value.type == "cuda"
    return torch.device("cpu") if is_cuda_text or is_cuda_device else value


def _answer(value: Any) -> Callable[..., Any]:
    """A new function that answers the same to everything. New each time: torch keeps functions apart by identity."""

    def answer(*_args: Any, **_kwargs: Any) -> Any:
        return value

    return answer


class _Context:
    """A device guard or a stream: entering it changes nothing."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        self.cuda_stream = 0
        self.device = CUDA_0

    def __enter__(self) -> _Context:
        return self

    def __exit__(self, *_error: Any) -> None:
        return None

    def __getattr__(self, _name: str) -> Any:
        return _answer(None)


def device_properties(hardware: Hardware) -> SimpleNamespace:
    """What `torch.cuda.get_device_properties` says of the target."""
    major, minor = hardware.compute_capability
    return SimpleNamespace(
        name=hardware.name,
        major=major,
        minor=minor,
        total_memory=hardware.dram_bytes,
        multi_processor_count=hardware.n_sms,
        warp_size=WARP_SIZE,
        L2_cache_size=hardware.l2_bytes,
        max_threads_per_multi_processor=hardware.max_threads_per_sm,
        max_threads_per_block=1024,
        regs_per_multiprocessor=hardware.registers_per_sm,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=hardware.shared_bytes_per_block,
        shared_memory_per_multiprocessor=hardware.shared_bytes_per_sm,
    )


def _cuda_answers(hardware: Hardware) -> dict[str, Any]:
    """The functions of torch.cuda that host code may ask, by name."""
    memory = (hardware.dram_bytes, hardware.dram_bytes)
    values = {
        "is_available": True,
        "is_initialized": True,
        "is_bf16_supported": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_properties": device_properties(hardware),
        "get_device_capability": hardware.compute_capability,
        "get_device_name": hardware.name,
        "mem_get_info": memory,
        "memory_allocated": 0,
        "_exchange_device": 0,
        "_maybe_exchange_device": 0,
    }
    # a build with CUDA has no generators to seed before it has a context
    ignored = ("init", "_lazy_init", "set_device", "synchronize", "empty_cache", "manual_seed", "manual_seed_all")
    contexts = ("current_stream", "default_stream", "device", "device_of", "stream", "Stream", "Event")
    return {
        **{name: _answer(value) for name, value in values.items()},
        **{name: _answer(None) for name in ignored},
        **{name: type(name, (_Context,), {}) for name in contexts},
    }


@contextmanager
def answering(hardware: Hardware) -> Iterator[None]:
    """Inside, torch.cuda and torch.accelerator answer as with the target in this machine."""
    accelerator = {"is_available": _answer(True), "current_accelerator": _answer(torch.device("cuda"))}
    with ExitStack() as stack:
        for module, answers in ((torch.cuda, _cuda_answers(hardware)), (torch.accelerator, accelerator)):
            for name, answer in answers.items():
                stack.enter_context(patch.object(module, name, answer, create=True))
        yield


def _apply_to_module(module: Any, function: Callable[[Any], Any], recurse: bool = True) -> Any:
    """In place of `nn.Module._apply`, which swaps a fake parameter's content and cannot: it puts in a new parameter."""
    for part in module.modules() if recurse else [module]:
        for name, parameter in part._parameters.items():
            applied = None if parameter is None else function(parameter)
            if applied is not parameter:
                part._parameters[name] = torch.nn.Parameter(applied, requires_grad=False)
        for name, buffer in part._buffers.items():
            part._buffers[name] = None if buffer is None else function(buffer)
    return module


@contextmanager
def fake_device(hardware: Hardware, addresses: AddressSpace) -> Iterator[None]:
    """Fake tensors, faked torch.cuda, and no gradients. Everything is as before afterwards."""
    with ExitStack() as stack:
        stack.enter_context(answering(hardware))
        for name, answer in (
            ("is_cuda", property(lambda _t: True)),
            ("is_cpu", property(lambda _t: False)),
            ("device", property(_device)),
            ("data_ptr", lambda tensor: addresses.address_of(tensor)),
            ("__repr__", _printed),
        ):
            stack.enter_context(patch.object(FakeTensor, name, answer))
        stack.enter_context(patch.object(torch.nn.Module, "_apply", _apply_to_module))
        fake_mode = stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(OnCpu(fake_mode))
        stack.enter_context(torch.no_grad())
        yield
