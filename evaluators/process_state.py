"""What a candidate must leave as it found it in its own process: flags of torch, functions of the judge's, threads, and
the weights that it was given. Asked in the child, before and after; a change refuses.

Native code could answer falsely here as everywhere in its process (see docs/threat-model.md).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from evaluators.gates.integrity import differing, has_same_bytes

FLAGS: dict[str, Callable[[], Any]] = {
    "torch.backends.cuda.matmul.allow_tf32": lambda: torch.backends.cuda.matmul.allow_tf32,
    "torch.backends.cudnn.allow_tf32": lambda: torch.backends.cudnn.allow_tf32,
    "torch.backends.cudnn.benchmark": lambda: torch.backends.cudnn.benchmark,
    "torch.backends.cudnn.deterministic": lambda: torch.backends.cudnn.deterministic,
    "torch.backends.cudnn.enabled": lambda: torch.backends.cudnn.enabled,
    "reduced precision in float16 products": (
        lambda: torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction
    ),
    "reduced precision in bfloat16 products": (
        lambda: torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    ),
    "the precision of float32 products": torch.get_float32_matmul_precision,
    "the default dtype": torch.get_default_dtype,
    "the default device": torch.get_default_device,
    "grad mode": torch.is_grad_enabled,
    "inference mode": torch.is_inference_mode_enabled,
    "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
    "torch's number of threads": torch.get_num_threads,
}


def _triton_run() -> Any:
    from triton.runtime.jit import JITFunction

    return JITFunction.run


# what the child's clock, its copies and its captures rest on
FUNCTIONS: dict[str, Callable[[], Any]] = {
    "torch.cuda.Event.record": lambda: torch.cuda.Event.record,
    "torch.cuda.Event.elapsed_time": lambda: torch.cuda.Event.elapsed_time,
    "torch.cuda.synchronize": lambda: torch.cuda.synchronize,
    "torch.cuda.CUDAGraph.replay": lambda: torch.cuda.CUDAGraph.replay,
    "torch.Tensor.copy_": lambda: torch.Tensor.copy_,
    "time.perf_counter": lambda: time.perf_counter,
    "triton.runtime.jit.JITFunction.run": _triton_run,
}


class State(NamedTuple):
    """Flags as text, functions as they are, and the number of threads that run Python."""

    flags: dict[str, str]
    functions: dict[str, Any]
    n_threads: int


def observe() -> State:
    """The state of this process now."""
    flags = {name: _text(read) for name, read in FLAGS.items()}
    return State(flags, {name: read() for name, read in FUNCTIONS.items()}, len(sys._current_frames()))


def differences(before: State, after: State) -> list[str]:
    """What changed, a sentence each."""
    found = [f"{n} was {v}, it is {after.flags[n]}" for n, v in before.flags.items() if after.flags[n] != v]
    found += [f"{n} was replaced" for n, f in before.functions.items() if after.functions[n] is not f]
    if after.n_threads > before.n_threads:
        found.append(f"{after.n_threads - before.n_threads} threads more than before")
    return found


class KeptWeights:
    """The weights of one program that came from the reference, to be compared bit by bit with what they were."""

    def __init__(self, program: Any, shared: Mapping[str, Tensor]) -> None:
        """
        Args:
            program: has weights if it is a module.
            shared: the reference's weights by name. Where the program holds the same bits, they are compared with
                these; where it has made others of them, with a copy.
        """
        self._program = program
        self._kept = {
            name: shared[name] if _is_same(value, shared[name]) else value.detach().clone()
            for name, value in _state(program).items()
            if name in shared
        }

    def changed(self) -> list[str]:
        """The weights that are not what they were, a sentence each."""
        now = _state(self._program)
        alike = [name for name, kept in self._kept.items() if name in now and _is_alike(now[name], kept)]
        others = differing([(now[name].detach(), self._kept[name]) for name in alike])
        changed = [alike[i] for i in others] + [name for name in self._kept if name not in alike]
        return [f"weight {name} was changed by the program" for name in changed]


def _state(program: Any) -> dict[str, Tensor]:
    if not isinstance(program, torch.nn.Module):
        return {}
    return {name: v for name, v in [*program.named_parameters(), *program.named_buffers()] if isinstance(v, Tensor)}


def _is_same(a: Tensor, b: Tensor) -> bool:
    return _is_alike(a, b) and has_same_bytes(a.detach(), b)


def _is_alike(a: Tensor, b: Tensor) -> bool:
    return bool(a.shape == b.shape and a.dtype == b.dtype and a.device == b.device)


def _text(read: Callable[[], Any]) -> str:
    try:
        return str(read())
    except Exception as error:  # torch refuses to read flags that were set in two ways
        return type(error).__name__
