"""The judge's side: hand a candidate its inputs and take what it answers. What that is worth, gates decide."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from db.records import TensorSpec
from evaluators.sandbox.client import Child, ChildEnded, Exit, Zygote
from evaluators.sandbox.tensors import allocate, open_shared, poison, share

JOB = "evaluators.interpreter.job:run"
PRELOAD = ("evaluators.interpreter.job", "evaluators.interpreter.shims:apply")

FailureKind = Literal["error", "crash", "timeout", "mismatch"]


class Failure(NamedTuple):
    """Why there are no outputs. `error`: the candidate raised; `crash`: its process ended itself or was killed for a
    limit; `mismatch`: outputs of another number, type, shape or dtype."""

    kind: FailureKind
    reason: str


class InterpretResult(NamedTuple):
    """Exactly one of `outputs`, `failure` and `unsupported` is set. `changed_inputs` are the positions of the inputs
    that the candidate wrote to (bitwise, by the judge's own copies)."""

    outputs: list[Tensor] | None = None
    failure: Failure | None = None
    unsupported: str | None = None
    changed_inputs: tuple[int, ...] = ()


def interpret(
    zygote: Zygote,
    *,
    source: str,
    entry_point: str,
    init_args: Sequence[Any],
    weights: Mapping[str, Tensor],
    inputs: Sequence[Any],
    output_specs: Sequence[TensorSpec],
    deadline_s: float,
) -> InterpretResult:
    """Run a candidate once under the interpreter, in a child of a zygote that interprets (best with `PRELOAD`).

    `inputs` are CPU tensors and plain values; they are copied, the caller's own are never touched. Outputs start as NaN
    (integers: 0xA5 in every byte), so that a candidate that lies about having written them shows.

    Raises:
        SandboxError: the zygote has ended.
    """
    with _shared_memory() as memory:
        payload = {
            "source": source,
            "entry_point": entry_point,
            "init_args": list(init_args),
            "weights": {name: memory.share(tensor) for name, tensor in weights.items()},
            "inputs": [memory.share(x) if isinstance(x, Tensor) else {"value": x} for x in inputs],
            "outputs": [memory.poisoned(spec) for spec in output_specs],
        }
        n_weights, n_outputs = len(weights), len(output_specs)
        with zygote.spawn(JOB, payload, deadline_s=deadline_s, fds=memory.fds) as child:
            message, exit = _conversation(child)
        views = memory.views()
        outputs = views[len(views) - n_outputs :]
        shared_inputs = views[n_weights : len(views) - n_outputs]
    changed = _changed(inputs, shared_inputs)
    return _result(message, exit, outputs)._replace(changed_inputs=changed)


def _conversation(child: Child) -> tuple[dict[str, Any], Exit]:
    """The only message of the job, empty when there was none, and how it ended."""
    try:
        message = child.receive()
    except ChildEnded as ended:
        return {}, ended.exit
    return message, child.wait()


def _result(message: dict[str, Any], exit: Exit, outputs: list[Tensor]) -> InterpretResult:
    if exit.kind == "ok" and "outputs" in message:
        return InterpretResult(outputs=outputs)
    if exit.kind == "ok" and "mismatch" in message:
        return InterpretResult(failure=Failure("mismatch", str(message["mismatch"])))
    if exit.kind == "ok" and "unsupported" in message:
        return InterpretResult(unsupported=str(message["unsupported"]))
    if exit.kind == "error":
        return InterpretResult(failure=Failure("error", exit.detail))
    if exit.kind == "timeout":
        return InterpretResult(failure=Failure("timeout", exit.detail))
    return InterpretResult(failure=Failure("crash", exit.detail or "the process ended without an answer"))


def _changed(inputs: Sequence[Any], shared: Sequence[Tensor]) -> tuple[int, ...]:
    positions = [i for i, value in enumerate(inputs) if isinstance(value, Tensor)]
    pairs = zip(positions, shared, strict=True)
    return tuple(i for i, now in pairs if not _same_bits(inputs[i].detach().cpu(), now))


def _same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal bit for bit: NaN equals itself, and -0.0 is not 0.0."""
    as_bytes = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (a, b)]
    return bool(torch.equal(*as_bytes))


class _SharedMemory:
    """Tensors in shared memory, in the order in which the child opens them."""

    def __init__(self) -> None:
        self.fds: list[int] = []
        self._specs: list[TensorSpec] = []

    def share(self, tensor: Tensor) -> dict[str, Any]:
        fd, spec = share(tensor)
        return self._add(fd, spec)

    def poisoned(self, spec: TensorSpec) -> dict[str, Any]:
        fd = allocate(spec)
        poison(open_shared(fd, spec))
        return self._add(fd, spec)

    def views(self) -> list[Tensor]:
        return [open_shared(fd, spec) for fd, spec in zip(self.fds, self._specs, strict=True)]

    def _add(self, fd: int, spec: TensorSpec) -> dict[str, Any]:
        self.fds.append(fd)
        self._specs.append(spec)
        return spec.model_dump()


@contextmanager
def _shared_memory() -> Iterator[_SharedMemory]:
    memory = _SharedMemory()
    try:
        yield memory
    finally:
        for fd in memory.fds:
            os.close(fd)
