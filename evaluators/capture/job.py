"""Sandbox job: run a candidate's `forward` on fake tensors, compile what it launches, and record it all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
import triton
from torch.utils._pytree import tree_leaves
from triton.runtime import autotuner, jit

from db.hashing import content_hash
from db.records import Capture, Hardware, Launch, TensorSpec
from evaluators.capture.cubin import Resources, read_resources, text_hash
from evaluators.capture.failure import KernelFailure, explain
from evaluators.capture.fake_device import fake_device
from evaluators.capture.first_reads import find_accesses
from evaluators.capture.launches import answering_nothing, bind_arguments, evaluate_grid, launched
from evaluators.capture.occupancy import occupancy_of
from evaluators.capture.ptx import begins_with_wait, read_global_loads
from evaluators.capture.target_driver import TargetDriver
from evaluators.capture.tensors import AddressSpace, fake_tensor, fake_values
from evaluators.capture.torch_ops import OpRecorder
from evaluators.capture.unwritten import MadeHere, UnwrittenMemory, bound_memory, storage_key
from evaluators.hardware import load_hardware
from evaluators.sandbox.candidate import build, load_candidate
from evaluators.sandbox.channel import Channel


def capture(channel: Channel, payload: dict[str, Any]) -> None:
    """Sends {"capture": Capture} or {"failed": reason, "is_unsupported": bool}.

    The payload has source, entry_point, init_args, input_specs, weight_specs (name to `TensorSpec`), workload (a name)
    and hardware (a dumped `Hardware`).
    """
    try:
        reply: dict[str, Any] = {"capture": run_captured(payload).model_dump(mode="json")}
    except Exception as error:  # the boundary to candidate code: whatever it raises is an answer
        reply = explain(error, payload["source"])
    channel.send(reply)


def run_captured(payload: Mapping[str, Any]) -> Capture:
    """The capture of one forward. Raises what the candidate or the compiler raises."""
    hardware = Hardware.model_validate(payload["hardware"])
    addresses = AddressSpace()
    memory = UnwrittenMemory()
    recorder = LaunchRecorder(hardware, addresses, memory)
    with fake_device(hardware, addresses), recorder.in_place_of_launches():
        with MadeHere() as made:
            forward, inputs = build_on_fakes(payload, addresses)
        memory.keep(made.tensors)
        memory.give([*_tensors_of(inputs), *_weights_of(forward, payload.get("weight_specs", {}))])
        with OpRecorder(addresses, lambda: len(recorder.launches), memory) as operations:
            result = forward(*inputs)
        outputs = [addresses.describe(t) for t in _tensors_of(result)]
    return Capture(
        workload=payload["workload"],
        target=hardware.target,
        triton_version=triton.__version__,
        launches=tuple(recorder.finished()),
        torch_ops=tuple(operations.operations),
        outputs=tuple(outputs),
    )


def build_on_fakes(payload: Mapping[str, Any], addresses: AddressSpace) -> tuple[Callable[..., Any], list[Any]]:
    """The candidate, built on fake weights, with fake inputs; both have names in the address space."""
    weights = {
        name: fake_tensor(TensorSpec.model_validate(spec)) for name, spec in payload.get("weight_specs", {}).items()
    }
    module = load_candidate(payload["source"])
    forward = build(module, payload["entry_point"], payload["init_args"], weights, "cuda")
    inputs = fake_values(payload["input_specs"])
    for i, value in enumerate(inputs):
        if isinstance(value, torch.Tensor):
            addresses.name(value, f"x{i}")
    for name, weight in _named_weights(forward):
        addresses.name(weight, f"w:{name}")
    return forward, inputs


def _named_weights(forward: Any) -> list[tuple[str, Any]]:
    owner = getattr(forward, "__self__", forward)
    if not isinstance(owner, torch.nn.Module):
        return []
    return [*owner.named_parameters(), *owner.named_buffers()]


def _weights_of(forward: Any, given: Collection[str]) -> list[Any]:
    """Weights that are the reference's; what a program registers beside them is its own."""
    return [weight for name, weight in _named_weights(forward) if name in given]


def _tensors_of(values: Any) -> list[Any]:
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


class LaunchRecorder:
    """Takes the place of launching: Triton's own binder and compiler run, the kernel does not."""

    def __init__(self, hardware: Hardware, addresses: AddressSpace, memory: UnwrittenMemory) -> None:
        self.launches: list[Launch] = []
        self._hardware = hardware
        self._addresses = addresses
        self._memory = memory
        self._compile = jit.JITFunction.run
        self._resources: dict[str, tuple[str, Resources]] = {}  # by hash of the source that was compiled

    @contextmanager
    def in_place_of_launches(self) -> Iterator[None]:
        """Launches inside are recorded; an autotuner takes its first configuration."""
        triton.runtime.driver.set_active(TargetDriver(self._hardware))
        with ExitStack() as stack:
            stack.enter_context(answering_nothing())
            stack.enter_context(patch.object(jit.JITFunction, "run", lambda fn, *a, **k: self.launch(fn, a, k)))
            stack.enter_context(patch.object(autotuner.Autotuner, "run", lambda t, *a, **k: self._tuned(t, a, k)))
            yield

    def finished(self) -> list[Launch]:
        """The launches, with what is known when the call is over."""
        kept = self._memory.kept_answers()
        return [
            launch.model_copy(update={"unwritten_reads": (*launch.unwritten_reads, *kept.get(i, ()))})
            for i, launch in enumerate(self.launches)
        ]

    def _tuned(self, tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Before a launch, an autotuner may set its arguments to zero, or to what its own code says."""
        if tuner.reset_to_zero or tuner.user_defined_pre_hook or tuner.configs[0].pre_hook:
            self._memory.give(_tensors_of((args, kwargs)))
        return run_first_configuration(tuner, *args, **kwargs)

    def launch(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compiles and records one launch; answers the compiled kernel, as Triton does."""
        grid, is_warmup = kwargs.pop("grid", None), kwargs.pop("warmup", False)
        try:
            kernel = self._compile(function, *args, grid=None, warmup=True, **kwargs)
        except Exception as error:  # the compiler raises anything; the kernel's name has to go with it
            raise KernelFailure(function, error) from error
        if not is_warmup:
            self.launches.append(self._launch_of(function, bind_arguments(function.fn, args, kwargs), grid, kernel))
        return kernel

    def _launch_of(self, function: Any, arguments: dict[str, Any], grid: Any, kernel: Any) -> Launch:
        metadata = kernel.metadata
        code, resources = self._read(kernel)
        launch_grid = evaluate_grid(function.fn.__name__, grid, arguments)
        occupancy = occupancy_of(
            self._hardware,
            n_registers=resources.n_registers,
            shared_bytes=metadata.shared,
            num_warps=metadata.num_warps,
            n_programs=launch_grid[0] * launch_grid[1] * launch_grid[2],
        )
        if getattr(metadata, "launch_pdl", False) and not begins_with_wait(kernel.asm["ptx"]):
            raise RuntimeError(f"launch_pdl lets launches of {function.fn.__name__} overlap: begin it with gdc_wait()")
        loads = read_global_loads(kernel.asm["ptx"])
        seen = launched(function, arguments, launch_grid)
        passed = {k: v for k, v in arguments.items() if k not in seen.constexprs}
        bound = [describe_argument(self._addresses, v) for v in passed.values()]
        return Launch(
            kernel=function.fn.__name__,
            grid=launch_grid,
            num_warps=metadata.num_warps,
            num_stages=getattr(metadata, "num_stages", 0),
            shared_bytes=metadata.shared,
            text_hash=code,
            binding_hash=content_hash(*bound),
            n_registers=resources.n_registers,
            spill_bytes=resources.stack_bytes,
            occupancy=occupancy.fraction,
            occupancy_limiter=occupancy.limiter,
            load_vector_bytes=loads.vector_bytes,
            has_async_copies=loads.is_async,
            constexprs=seen.constexprs,
            arguments=seen.arguments,
            tensors=tuple(self._addresses.describe(v) for v in map(tensor_of, arguments.values()) if v is not None),
            unwritten_reads=self._unwritten_reads(passed, kernel) if 0 not in launch_grid else (),
        )

    def _unwritten_reads(self, passed: Mapping[str, Any], kernel: Any) -> tuple[str, ...]:
        """Arguments through which a launch reads memory that nobody has written in this call."""
        bound = bound_memory(passed)
        if not self._memory.concerns(bound):
            return ()
        numbers = {name: value for name, value in passed.items() if isinstance(value, bool | int | float)}
        accesses = find_accesses(kernel.asm.get("ttir", ""), [storage_key(b.tensor) for b in bound], numbers)
        return self._memory.launch(len(self.launches), bound, accesses)

    def _read(self, kernel: Any) -> tuple[str, Resources]:
        if kernel.hash not in self._resources:
            cubin = kernel.asm["cubin"]
            self._resources[kernel.hash] = text_hash(cubin), read_resources(cubin)
        return self._resources[kernel.hash]


def run_first_configuration(tuner: Any, *args: Any, **kwargs: Any) -> Any:
    """In place of `Autotuner.run`: nothing is timed."""
    return tuner.fn.run(*args, **{**kwargs, **tuner.configs[0].all_kwargs()})


def describe_argument(addresses: AddressSpace, value: Any) -> str:
    """What an argument is bound to, in text that is equal for equal bindings."""
    if isinstance(value, torch.Tensor):
        return f"{addresses.label_of(value)}:{value.dtype}"
    if isinstance(value, tuple | list):
        return f"({', '.join(describe_argument(addresses, v) for v in value)})"
    if hasattr(value, "block_shape"):  # TensorDescriptor
        base = addresses.label_of(value.base)
        return f"descriptor {base} {list(value.shape)} {list(value.strides)} {list(value.block_shape)}"
    return f"{type(value).__name__} {value!r}"


def tensor_of(value: Any) -> Any:
    """The tensor that an argument is, or that a TensorDescriptor describes; None for anything else."""
    value = value.base if hasattr(value, "block_shape") else value
    return value if isinstance(value, torch.Tensor) else None


def warm_up() -> None:
    """For a zygote, before its first fork: the imports and first steps that every capture would pay for."""
    addresses = AddressSpace()
    with fake_device(load_hardware("h100"), addresses), OpRecorder(addresses, lambda: 0):
        tensor = torch.empty(16, 16, device="cuda")
        torch.sum(tensor.copy_(torch.zeros_like(tensor)) * 2.0).item()  # copies of fake tensors import most
