"""How long a module's operations take at least, with and without libraries. Runs trusted code: the user's own.

As if everything between two calls of libraries were one kernel, which is what a compiler tries: a tensor that comes
from outside is read once, one that a library or the caller takes is written once, all at the bandwidth of memory. A
call of a library takes what its bytes or its arithmetic take, whichever is longer (roofline model, Williams et al.,
2009). Started as `python -P -m evaluators.decomposition.work`, JSON in, one line for each module out.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from db.records import Hardware, Problem
from evaluators.capture.flops import flops_of
from evaluators.problems.reference import Reference

_RECURRENT = ("rnn", "lstm", "gru")


class Work(TorchDispatchMode):  # type: ignore[misc]
    """Adds up the time of every operation that runs inside. Seconds."""

    def __init__(self, hardware: Hardware) -> None:
        super().__init__()
        self.in_libraries_s = 0.0
        self.other_s = 0.0
        self._hardware = hardware
        self._between: set[int] = set()  # storages that other operations made and nobody had to write yet
        self._read: set[int] = set()
        self._held: list[Any] = []  # storages live as long as their ids are used

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given, made = _tensors((args, kwargs)), _tensors(result)
        self._held += made
        flops = flops_of(func, args, kwargs, result)
        n_steps = _n_steps(func, given)
        if flops or n_steps:
            self.other_s += sum(self._written(tensor) for tensor in given)
            arithmetic_s = sum(n / (self._hardware.tflops[kind] * 1e12) for kind, n in flops.items())
            memory_s = sum(map(self._memory_s, (*given, *made))) * max(1, n_steps)
            self.in_libraries_s += max(arithmetic_s, memory_s)
            return result
        if made and not func.is_view:
            self.other_s += sum(self._first_read(tensor) for tensor in given)
        self._between |= {_key(tensor) for tensor in made} - {_key(tensor) for tensor in given}
        return result

    def finish(self, outputs: list[Tensor]) -> None:
        """What the caller gets has to be written."""
        self.other_s += sum(self._written(tensor) for tensor in outputs)

    def _first_read(self, tensor: Tensor) -> float:
        key = _key(tensor)
        if key in self._between or key in self._read:
            return 0.0
        self._read.add(key)
        return self._memory_s(tensor)

    def _written(self, tensor: Tensor) -> float:
        if _key(tensor) not in self._between:
            return 0.0
        self._between.discard(_key(tensor))
        return self._memory_s(tensor)

    def _memory_s(self, tensor: Tensor) -> float:
        return float(tensor.numel() * tensor.element_size()) / (self._hardware.dram_gb_s * 1e9)


def other_share(problem: Problem, hardware: Hardware) -> float:
    """The part of a module's time that is spent outside of libraries.

    Raises:
        ProblemError: fake tensors cannot run it.
    """
    work = Work(hardware)
    work.finish(Reference(problem, problem.full).watched_by(work))
    total_s = work.in_libraries_s + work.other_s
    return work.other_s / total_s if total_s else 0.0


def _n_steps(operation: Any, given: list[Tensor]) -> int:
    """Steps of a recurrent layer, which has no formula: each of them reads the weights again. 0 for all else."""
    is_recurrent = any(word in str(operation) for word in _RECURRENT)
    return given[0].shape[0] if is_recurrent and given and given[0].dim() else 0


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def _key(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def main() -> None:
    """Answers in the order that was asked; null where a module cannot be run so."""
    request = json.loads(sys.stdin.read())
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what modules print is no answer
    hardware = Hardware.model_validate(request["hardware"])
    for values in request["problems"]:
        try:
            share: float | None = other_share(Problem.model_validate(values), hardware)
        except (Exception, SystemExit):  # the boundary of a module, whatever its file does: the others are looked at
            share = None
        print(json.dumps(share), file=answers, flush=True)


if __name__ == "__main__":
    main()
